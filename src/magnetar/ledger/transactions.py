"""Which transactions a log has open, and which of those that ended in it were aborted (KIP-98).

Everything below the last stable offset is decided: there no transaction is open, and none has ended but for a marker
that is not durable yet. Of what is decided, readers of committed messages pass over those of aborted transactions. This
follows from the log: whoever appends to it tells of it here, and whoever loads it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

NOT_OPENED: Final = -1
"""No offset: a message that is not the first of its transaction."""


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its producer's messages in ``[first_offset, last_offset]`` do not count.

    At ``last_offset`` is its marker. When it was written no message below ``stable`` was of an open transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    stable: int


class _Ended(NamedTuple):
    """A transaction whose marker is in the log, and perhaps not durable."""

    producer_id: int
    first_offset: int
    marker_offset: int


class LogTransactions:
    """Those of one log."""

    __slots__ = ("_ended", "_firsts", "_lasts", "_open", "_producers", "_stables")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """The first offset by the producer's id. Transactions begin at the log's end, so the first is the oldest."""
        self._ended: list[_Ended] = []
        # Columns of the aborted ones, by the offset of their markers: there may be very many of them.
        self._producers, self._firsts, self._lasts, self._stables = (array("q") for _ in range(4))

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_empty(self) -> bool:
        """True if nothing is open, and nothing was aborted."""
        return not (self._open or self._ended or self._lasts)

    @property
    def aborted_count(self) -> int:
        """How many aborted transactions are known."""
        return len(self._lasts)

    def open(self) -> dict[int, int]:
        """Return the first offset of each open transaction by its producer's id, the oldest first; a copy."""
        return dict(self._open)

    def first_of(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction, None if it has none."""
        return self._open.get(producer_id)

    def begin(self, producer_id: int, offset: int) -> int:
        """A producer's message at ``offset`` is of a transaction; give ``offset`` if it opens it, or `NOT_OPENED`."""
        if producer_id in self._open:
            return NOT_OPENED
        self._open[producer_id] = offset
        return offset

    def end(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """The marker at ``marker_offset`` ends what a producer has open, if it has anything."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        self._ended.append(_Ended(producer_id, first_offset, marker_offset))
        if not committed:
            stable = next(iter(self._open.values()), marker_offset + 1)
            self.add_aborted(AbortedTransaction(producer_id, first_offset, marker_offset, stable))

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        """Note an aborted transaction whose marker lies behind all that are known."""
        self._producers.append(aborted.producer_id)
        self._firsts.append(aborted.first_offset)
        self._lasts.append(aborted.last_offset)
        self._stables.append(aborted.stable)

    def stable(self, high_watermark: int, log_start_offset: int = 0) -> int:
        """Return the last stable offset of a log whose messages below ``high_watermark`` are durable."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            del ended[0]
        stable = high_watermark
        if self._open:
            stable = min(stable, next(iter(self._open.values())))
        for each in ended:
            stable = min(stable, each.first_offset)
        return max(stable, min(log_start_offset, high_watermark))

    def aborted_in(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have messages in ``[start, end)``, or may, by their markers' offsets."""
        found = []
        for at in range(bisect_left(self._lasts, start), len(self._lasts)):
            if self._firsts[at] < end:
                found.append(self._at(at))
            if self._stables[at] >= end:  # all that end behind it have begun there, too
                break
        return found

    def aborted(self) -> Iterable[AbortedTransaction]:
        """Return all aborted transactions that are known, by their markers' offsets."""
        return map(self._at, range(len(self._lasts)))

    def _at(self, at: int) -> AbortedTransaction:
        return AbortedTransaction(self._producers[at], self._firsts[at], self._lasts[at], self._stables[at])

    def take_back(self, offset: int) -> None:
        """Messages from ``offset`` on did not go in: transactions that began there did not, those ended there go on."""
        undone = [each for each in self._ended if each.marker_offset >= offset]
        again = {each.producer_id: each.first_offset for each in reversed(undone)}  # the first of several
        self._ended = [each for each in self._ended if each.marker_offset < offset]
        still = {**self._open, **again}
        ordered = sorted(still.items(), key=lambda each: each[1])
        self._open = {producer_id: first for producer_id, first in ordered if first < offset}
        self._keep_aborted(0, bisect_left(self._lasts, offset))

    def forget_before(self, log_start_offset: int) -> None:
        """Forget the aborted transactions of which no message can be read any more."""
        gone = bisect_left(self._lasts, log_start_offset)
        if gone:
            self._keep_aborted(gone, len(self._lasts))

    def forget_ended(self, marker_offsets: Collection[int]) -> None:
        """Forget the aborted transactions with markers at these offsets: neither these nor their messages are there."""
        keep = [at for at, last in enumerate(self._lasts) if last not in marker_offsets]
        columns = self._producers, self._firsts, self._lasts, self._stables
        self._producers, self._firsts, self._lasts, self._stables = (
            array("q", [column[at] for at in keep]) for column in columns
        )

    def forget_open(self, producer_ids: Iterable[int]) -> None:
        """Forget open transactions: they have ended, and neither their messages nor their markers are there."""
        for each in producer_ids:
            self._open.pop(each, None)

    def aborted_columns(self) -> tuple[array[int], array[int], array[int]]:
        """Return copies of what is known of aborted ones: producer ids, first offsets, and markers' offsets."""
        return self._producers[:], self._firsts[:], self._lasts[:]

    def _keep_aborted(self, start: int, end: int) -> None:
        self._producers, self._firsts = self._producers[start:end], self._firsts[start:end]
        self._lasts, self._stables = self._lasts[start:end], self._stables[start:end]

    def restore(self, opened: Iterable[tuple[int, int]], aborted: Iterable[AbortedTransaction]) -> None:
        """Take over what a snapshot says: open transactions as (producer id, first offset), and the aborted ones."""
        self._open = dict(sorted(opened, key=lambda each: each[1]))
        for each in aborted:
            self.add_aborted(each)
