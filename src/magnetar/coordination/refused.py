"""The exception with which coordinators refuse a request."""

from __future__ import annotations

from magnetar.wire.kafka.errors import ErrorCode


class CoordinatorRefused(Exception):
    """A request is refused, for the reason that ``code`` names; nothing has changed."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
