"""Who asks."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """Who sends a request, and in which version."""

    client_id: str
    client_host: str
    api_version: int
