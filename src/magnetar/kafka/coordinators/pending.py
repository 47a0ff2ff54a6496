"""Offsets that were committed in transactions which are still open: they are not read before the end (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from magnetar.coordination.decision import Fact, Transaction
from magnetar.kafka.coordinators.facts import Committed, offset_fact


class Name(NamedTuple):
    """The group, topic and partition of an offset."""

    group_id: str
    topic: str
    partition: int


class PendingOffsets:
    """The pending offsets of one partition of ``__consumer_offsets``, by producer id. Later writes overrule them.

    So does a transaction that ends before an earlier one: compaction, too, retains what was written last (KAFKA-5259).
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[Transaction, dict[Name, Committed]]] = {}
        self._named: dict[str, dict[Name, dict[int, int]]] = {}
        """By group and name: the producers with such an offset, each with the number of its write."""
        self._writes = 0

    def __len__(self) -> int:
        return sum(len(offsets) for _, offsets in self._open.values())

    def add(self, transaction: Transaction, name: Name, committed: Committed) -> None:
        """Retain an offset until its transaction ends."""
        _, offsets = self._open.setdefault(transaction.producer_id, (transaction, {}))
        offsets[name] = committed
        producers = self._named.setdefault(name.group_id, {}).setdefault(name, {})
        producers[transaction.producer_id] = self._writes
        self._writes += 1

    def overrule(self, name: Name) -> bool:
        """Remove the pending offsets of a name: it was committed or deleted since. Return whether there were any."""
        producers = self._named.get(name.group_id, {}).get(name)
        if producers is None:
            return False
        for producer_id in list(producers):
            self._let_go(producer_id, name)
        return True

    def end(self, transaction: Transaction, *, committed: bool) -> dict[Name, Committed]:
        """Return the offsets of a transaction that ends, in the order they were committed in."""
        producer_id = transaction.producer_id
        _, offsets = self._open.get(producer_id, (transaction, {}))
        ended = dict(offsets)
        for name in ended:
            writes = self._named[name.group_id][name]
            mine = writes[producer_id]
            for other in [each for each, number in writes.items() if committed and number < mine]:
                self._let_go(other, name)
            self._let_go(producer_id, name)
        return ended

    def epoch_of(self, producer_id: int) -> int | None:
        """Return the epoch of a producer's pending offsets; None if it has none."""
        held = self._open.get(producer_id)
        return None if held is None else held[0].producer_epoch

    def holds(self, name: Name) -> bool:
        """Return whether a transaction that is open has committed an offset under a name."""
        return name in self._named.get(name.group_id, ())

    def of_group(self, group_id: str) -> list[Name]:
        """Return the names under which a group has offsets here."""
        return list(self._named.get(group_id, ()))

    def of_topic(self, topic: str) -> list[Name]:
        """Return the names of a topic's partitions under which any group has offsets here."""
        return [name for names in self._named.values() for name in names if name.topic == topic]

    def facts(self) -> Iterator[Fact]:
        """Return the facts that state all this, in the order in which it was written."""
        rows = [
            (self._named[name.group_id][name][transaction.producer_id], transaction, name, committed)
            for transaction, offsets in self._open.values()
            for name, committed in offsets.items()
        ]
        for _, transaction, name, committed in sorted(rows, key=itemgetter(0)):
            yield offset_fact(*name, committed)._replace(transaction=transaction)

    def _let_go(self, producer_id: int, name: Name) -> None:
        _, offsets = self._open[producer_id]
        del offsets[name]
        if not offsets:
            del self._open[producer_id]
        names = self._named[name.group_id]
        del names[name][producer_id]
        if not names[name]:
            del names[name]
        if not names:
            del self._named[name.group_id]
