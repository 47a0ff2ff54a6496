"""What a client's certificate says about who it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def role_of(certificate: Mapping[str, Any]) -> str | None:
    """Return the common name of a verified certificate, as ``getpeercert()`` gave it; None if it has none."""
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName" and value:
                return str(value)
    return None
