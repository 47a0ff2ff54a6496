"""What commands end with: one table, which every command keeps to and ``magnetar help exit`` shows."""

from __future__ import annotations

from typing import NamedTuple

DONE = 0
FAILED = 1
NOT_UNDERSTOOD = 2
NEEDS_ATTENTION = 3
STORAGE_FAILED = 74
INTERRUPTED = 130


class ExitStatus(NamedTuple):
    """One status, and what it says of all commands."""

    number: int
    name: str
    means: str


TABLE = (
    ExitStatus(DONE, "done", "Done. What was asked for was found, and nothing is wrong with it."),
    ExitStatus(
        FAILED,
        "failed",
        "Failed: what was named does not exist, the broker declined or cannot be reached, or a check found damage. "
        "Standard error says what, and what to do.",
    ),
    ExitStatus(
        NOT_UNDERSTOOD,
        "not understood",
        "The command line, a setting or a file of settings was not understood. Nothing was done; it fails again.",
    ),
    ExitStatus(
        NEEDS_ATTENTION,
        "needs attention",
        "It works, and an operator should act: a degraded broker (`health`), warnings (`doctor`), something "
        "would change (`upgrade --check`). `audit`: table and topic could not be compared.",
    ),
    ExitStatus(
        STORAGE_FAILED,
        "storage failed",
        "`standalone`, `broker`: the disk failed for good while the broker served (EX_IOERR).",
    ),
    ExitStatus(INTERRUPTED, "interrupted", "Ended by Ctrl-C before it was done."),
)
