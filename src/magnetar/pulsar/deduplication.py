"""What a topic remembers of producers by name: the last sequence id stored, so that what comes twice is stored once.

It is kept as Pulsar keeps it, in the cursor ``pulsar.dedup``: its mark-delete position tells up to where the entries
are counted, and its properties (field 5 of ManagedCursorInfo: LongProperty 1 name, 2 value) hold a number per producer.
After a crash the entries behind it are read again; before compaction takes entries away it is kept anew. Only what is
durable is kept there: a number whose entry a power loss took would make the broker drop that message when it is sent
again.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from google.protobuf.message import DecodeError

from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.errors import LedgerFenced
from magnetar.ledger.formats.cursor_info import CursorInfo
from magnetar.ledger.port import ManagedLedger, Pending, Position, when_done
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata

CURSOR = "pulsar.dedup"
_ENTRIES_BETWEEN_SNAPSHOTS = 1000
_MAX_PRODUCERS = 10_000
_PLAIN = b"\x0e\x01"


class Deduplication:
    """The last sequence ids of one log's producers. ``load`` before use."""

    def __init__(self, log: ManagedLedger, cursors: CursorStore) -> None:
        self._log = log
        self._cursors = cursors
        self._pushed: dict[str, int] = {}  # appended, and maybe not durable yet
        self._in_flight: deque[tuple[Pending, str, int]] = deque()  # those that are not, in the log's order
        self._durable: dict[str, int] = {}
        self._since = 0
        self._last: Position | None = None
        self._is_loaded = False

    async def load(self) -> None:
        """Read what is kept, and the entries that came later. What is appended meanwhile may be noted already."""
        found: dict[str, int] = {}
        offset = self._log.log_start_offset
        kept = await self._cursors.read(CURSOR)
        if kept is not None:
            mark = kept.mark_delete
            found.update(kept.numbers)
            ledgers = {each.ledger_id: each for each in self._log.ledgers()}
            ledger = ledgers.get(mark.ledger_id)
            if ledger is not None and 0 <= mark.entry_id < ledger.entries:
                offset = await self._log.offset_behind(mark)
            elif not ledgers or mark.ledger_id >= min(ledgers):  # entries that were counted are lost
                found.clear()
        while entries := await self._log.read(offset, max_bytes=1 << 20):
            for entry in entries:
                at = 6 + int.from_bytes(entry.data[2:6], "big")
                if entry.data[at : at + 2] == _PLAIN:
                    end = at + 10 + int.from_bytes(entry.data[at + 6 : at + 10], "big")
                    _count(found, bytes(entry.data[at + 10 : end]))
            offset = entries[-1].last_offset + 1
        for producer, highest_sequence_id in found.items():
            _raise(self._pushed, producer, highest_sequence_id)
            _raise(self._durable, producer, highest_sequence_id)
        self._is_loaded = True

    def last_sequence_id(self, producer: str) -> int:
        """Return the highest sequence id stored of a producer, -1 for none."""
        return self._pushed.get(producer, -1)

    def is_repeated(self, producer: str, highest_sequence_id: int) -> bool:
        """Whether this was appended before; it may not be durable yet."""
        return highest_sequence_id <= self._pushed.get(producer, -1)

    def note(self, pending: Pending, producer: str, highest_sequence_id: int) -> None:
        """Remember what was appended; once it is durable that is kept now and then. An id of -1 tells nothing."""
        if highest_sequence_id >= 0:
            _raise(self._pushed, producer, highest_sequence_id)
        self._in_flight.append((pending, producer, highest_sequence_id))
        if pending.done is None:
            self._settle()
        else:
            when_done(pending.done, self._settle)

    def _settle(self, _: object = None) -> None:
        """Count what is durable: in the log's order, or what is kept would tell of entries that were not counted."""
        in_flight = self._in_flight
        while in_flight:
            pending, producer, highest_sequence_id = in_flight[0]
            if pending.done is not None:
                if not pending.done.done():
                    return
                if pending.done.exception() is not None:
                    self.take_back(pending.base_offset)
                    return
            in_flight.popleft()
            self._last = pending.position
            if highest_sequence_id >= 0:
                _raise(self._durable, producer, highest_sequence_id)
            self._since += 1
            if self._since >= _ENTRIES_BETWEEN_SNAPSHOTS and self._is_loaded:
                with suppress(LedgerFenced):  # the log was deleted, or is another's, and so are its cursors
                    self.save()

    def take_back(self, offset: int) -> None:
        """What was appended from ``offset`` on was not kept."""
        forgotten = set()
        while self._in_flight and self._in_flight[-1][0].base_offset >= offset:
            forgotten.add(self._in_flight.pop()[1])
        for producer in forgotten:
            self._pushed[producer] = self._durable.get(producer, -1)
        for _, producer, highest_sequence_id in self._in_flight:
            if producer in forgotten and highest_sequence_id >= 0:
                _raise(self._pushed, producer, highest_sequence_id)

    @property
    def unsaved(self) -> bool:
        """Whether something is durable that the cursors have not been told to keep."""
        return self._is_loaded and self._last is not None and self._since > 0

    def save(self) -> None:
        """Have what is known, and up to where, be kept with the cursors."""
        if self.unsaved:
            self._since = 0
            self._cursors.change(CURSOR, self._info)

    def _info(self) -> CursorInfo:
        assert self._last is not None
        return CursorInfo(self._last, numbers=dict(self._durable))


def _count(known: dict[str, int], data: bytes) -> None:
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(data)
    except DecodeError:
        return
    if metadata.HasField("marker_type"):
        return
    if metadata.num_chunks_from_msg <= 1 or metadata.chunk_id == metadata.num_chunks_from_msg - 1:
        _raise(known, metadata.producer_name, max(metadata.sequence_id, metadata.highest_sequence_id))


def _raise(known: dict[str, int], producer: str, highest_sequence_id: int) -> None:
    """Note a number unless a higher one is known; the producer heard last stands last."""
    known[producer] = max(known.pop(producer, -1), highest_sequence_id)
    if len(known) > _MAX_PRODUCERS:
        del known[next(iter(known))]
