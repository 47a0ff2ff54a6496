"""The client of a request, as coordinators know it."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    """The client that sends a request, and the request's version."""

    client_id: str
    client_host: str
    api_version: int
