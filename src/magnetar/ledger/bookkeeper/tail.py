"""The newest entries of all logs of an engine, in memory within a budget: tailing readers need no bookie."""

from __future__ import annotations

from collections import OrderedDict

from magnetar.ledger.bookkeeper.read_ahead import AheadBudget
from magnetar.ledger.values import StoredEntry


class Tail:
    """Entries by their position; the oldest go first. ``budget`` is in bytes; a quarter is for what is read ahead."""

    def __init__(self, budget: int) -> None:
        self.size = 0
        self.ahead = AheadBudget(budget // 4)
        self._budget = budget - budget // 4
        self._entries: OrderedDict[tuple[int, int], StoredEntry] = OrderedDict()

    def add(self, entry: StoredEntry) -> None:
        """Add an entry."""
        self._entries[entry[:2]] = entry
        self.size += len(entry.data)
        while self.size > self._budget:
            _, gone = self._entries.popitem(last=False)
            self.size -= len(gone.data)

    def get(self, ledger_id: int, entry_id: int) -> StoredEntry | None:
        """Return an entry if it is still here."""
        return self._entries.get((ledger_id, entry_id))
