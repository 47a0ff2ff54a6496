"""What can stand between an operator and an answer; each says what to do next."""

from __future__ import annotations


class AdminError(Exception):
    """A question or an order that failed. ``next_step`` is a sentence about what to do now, or empty."""

    status = 1
    """What the command ends with."""

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.next_step = next_step


class Unreachable(AdminError):
    """No broker answers at that address, or nothing listens in that data directory."""


class Silent(Unreachable):
    """A broker is there, and does not answer in time."""


class NotThere(AdminError):
    """The topic, partition, group, offset or setting that was named does not exist."""


class Declined(AdminError):
    """The broker answered, and said no."""


class Forbidden(AdminError):
    """Whoever asks may not have that answer."""


class Invalid(AdminError):
    """What was asked for cannot be meant: a usage error."""

    status = 2
