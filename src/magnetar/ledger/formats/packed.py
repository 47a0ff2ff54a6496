"""Offsets as KoP made them before Pulsar had an index (before 2.8): a message's place, packed into 64 bits.

    bits   63..44        43..12      11..0
           ledger id     entry id    batch index

Only the lower 20 bits of a ledger's id have room. Record ``i`` of an entry had the offset of its first record plus
``i``, so a batch of more than 4096 records runs into the numbers of the entries behind it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from enum import StrEnum
from typing import NamedTuple

LEDGER_BITS, ENTRY_BITS, BATCH_BITS = 20, 32, 12
MAX_BATCH = 1 << BATCH_BITS
_LEDGERS = 1 << LEDGER_BITS
_IN_LEDGER = ENTRY_BITS + BATCH_BITS
_SIGN = 1 << 63


class Packed(NamedTuple):
    """What a packed offset says. ``ledger`` is the lower 20 bits of the ledger's id."""

    ledger: int
    entry: int
    batch_index: int


def pack(ledger_id: int, entry_id: int, batch_index: int = 0) -> int:
    """Return the offset as Kafka's clients saw it, a signed 64-bit number."""
    assert ledger_id >= 0
    assert 0 <= entry_id < 1 << ENTRY_BITS
    assert 0 <= batch_index < MAX_BATCH
    bits = (ledger_id % _LEDGERS) << _IN_LEDGER | entry_id << BATCH_BITS | batch_index
    return (bits ^ _SIGN) - _SIGN


def unpack(offset: int) -> Packed:
    """Return what a packed offset says; the inverse of `pack` for ledger ids below 2^20."""
    bits = offset % (1 << 64)
    entry = bits >> BATCH_BITS & (1 << ENTRY_BITS) - 1
    return Packed(bits >> _IN_LEDGER, entry, bits % MAX_BATCH)


class Landing(StrEnum):
    """Where a packed offset points."""

    record = "record"
    """At a record: it is the next one to be read."""
    next_entry = "next entry"
    """Behind the last record of an entry: the next one to be read is the first of the entry behind it."""
    end = "end"
    """Behind all there is."""
    trimmed = "trimmed"
    """At a ledger that is gone: the oldest record behind it is the next one."""
    ambiguous = "ambiguous"
    """At one of two records, because an entry of more than 4096 ran into the next: the earlier one is taken."""


class PackedLog:
    """The way from packed offsets to continuous ones in one managed ledger; eight bytes for each entry."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._largest = 0
        self._starts: dict[int, array[int]] = {}
        self._ids: dict[int, int] = {}

    def begin(self, ledger_id: int) -> int:
        """Go on with the next ledger; raise ``ValueError`` for one that packed offsets cannot tell from another."""
        short = ledger_id % _LEDGERS
        if short in self._ids:
            raise ValueError(
                f"ledgers {self._ids[short]} and {ledger_id} have the same lower 20 bits: "
                "no packed offset tells which of them it meant"
            )
        self._ids[short] = ledger_id
        self._starts[short] = array("q", [self.next_offset])
        return self.next_offset

    def add(self, ledger_id: int, messages: int) -> int:
        """Note the next entry of a ledger; give its first offset."""
        first = self.next_offset
        self.next_offset += messages
        self._largest = max(self._largest, messages)
        self._starts[ledger_id % _LEDGERS].append(self.next_offset)
        return first

    def starts(self, ledger_id: int) -> array[int]:
        """Return the first offset of every entry of a ledger, and the one behind the last."""
        return self._starts[ledger_id % _LEDGERS]

    def translate(self, offset: int) -> tuple[int, Landing]:
        """Return the continuous offset of the record that a packed one was the next to be read of."""
        packed = unpack(offset)
        starts = self._starts.get(packed.ledger)
        if starts is None:
            return self._gone(packed.ledger)
        plain, is_record = starts[-1], False
        if packed.entry < len(starts) - 1:
            behind = starts[packed.entry + 1]
            plain = min(starts[packed.entry] + packed.batch_index, behind)
            is_record = plain < behind
        earlier = self._of_an_earlier_entry(starts, packed)
        if earlier is not None and earlier != plain:
            return earlier, Landing.ambiguous
        if is_record:
            return plain, Landing.record
        return plain, Landing.end if plain >= self.next_offset else Landing.next_entry

    def _of_an_earlier_entry(self, starts: array[int], packed: Packed) -> int | None:
        """Return the first record that had this offset too, because its entry ran into this one; most logs have
        none.
        """
        found = None
        entry = packed.entry - 1
        while (delta := (packed.entry - entry << BATCH_BITS) + packed.batch_index) <= self._largest:
            if 0 <= entry < len(starts) - 1 and delta <= starts[entry + 1] - starts[entry]:
                found = starts[entry] + delta
            entry -= 1
        return found

    def _gone(self, short: int) -> tuple[int, Landing]:
        """Return the first offset of the first ledger behind one that is gone."""
        known = list(self._ids)
        if known != sorted(
            known
        ):  # the 20 bits began anew: nobody can tell where it was, and nothing may be skipped
            return 0, Landing.trimmed
        at = bisect_right(known, short)
        if at == len(known):
            return self.next_offset, Landing.end
        return self._starts[known[at]][0], Landing.trimmed
