"""Names of columns that decoded tables have besides the record's own."""

from __future__ import annotations

RESERVED = (
    "_topic", "_partition", "_offset", "_timestamp", "_key", "_headers", "_op", "_schema_id", "_error", "_bytes",
)  # fmt: skip
"""Columns of decoded tables that are not of the record; a field of such a name gets another."""
