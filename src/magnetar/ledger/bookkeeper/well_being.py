"""The health of bookies: the last failure, until something is stored again."""

from __future__ import annotations

_TOO_FEW = (-6, -8, -9, -23, -24)
"""BookKeeper's codes for bookies that are not there, too few, or silent."""


class BookiesHealth:
    """One client's view of them. ``trouble`` is empty while ledgers can be written, as far as was tried."""

    __slots__ = ("ensemble_changes", "failed_appends", "failed_creations", "trouble", "under_replicated")

    def __init__(self) -> None:
        self.trouble = ""
        self.failed_appends = 0
        self.failed_creations = 0
        self.ensemble_changes = 0
        """How often a bookie replaced another in ledgers that were written to their end here."""

        self.under_replicated: int | None = None
        """Ledgers with fewer copies than they should have, as the cluster's auditor found; None if not looked at."""

    def created(self, code: int, why: str) -> None:
        """Note the outcome of the creation of a ledger: 0, or BookKeeper's code and its text."""
        self.failed_creations += code != 0
        self._note(code, why)

    def appended(self, code: int, why: str) -> None:
        """Note the outcome of an append."""
        self.failed_appends += code != 0
        self._note(code, why)

    def _note(self, code: int, why: str) -> None:
        if code == 0:
            self.trouble = ""
        elif code in _TOO_FEW:
            self.trouble = why
