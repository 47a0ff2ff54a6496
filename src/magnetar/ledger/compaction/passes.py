"""The two passes of a compaction over entries: which message is the last of its key, and what is copied.

Functions of entries in, entries out, with the map of keys between them; in a thread or in a process of its own
(`magnetar.ledger.compaction.workers`), for they take the processor's time. Kafka's and PIP-14's rules are those of
`magnetar.records.compaction`; the rules for transactions, chunked messages and entries that cannot be opened are here.

- Entries of an aborted transaction go immediately; those of a committed one are treated like all others (KIP-98).
- A marker stays for as long as the run that meets it meets something that it ends, and then as long as deletions do:
  a reader that has read of the transaction must reach its end.
- The pieces of a whole chunked message go with the last of them. Pieces of which the last has not come stay.
- Entries that cannot be opened stay, and so do deletions after them: they may contain what is deleted. Pieces that stay
  retain only the deletions of their keys.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from magnetar.ledger.compaction.job import Copies, Job
from magnetar.ledger.compaction.pieces import WholeMessages
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.port import NewEntry, StoredEntry
from magnetar.records import compaction
from magnetar.records.batch import NO_PRODUCER
from magnetar.records.compaction import (
    Keeping,
    KeyMap,
    bits_of,
    count_of,
    kept_deletions,
    kept_rows,
    rewritten,
    there_were,
)
from magnetar.records.compression import Buffer
from magnetar.records.copied import Copied, behind_broker_head, copied_from, copied_head
from magnetar.records.entry import index_of, latest_timestamp
from magnetar.records.errors import EntryCorrupt, RecordsError
from magnetar.records.opened import (
    EntryKind,
    MessagePiece,
    OpenedEntry,
    UndividedEntry,
    open_entry,
)


class Passes:
    """One run's map of keys, and the two passes. First `note` the entries to compact, then `copy` them."""

    def __init__(self, job: Job, machine: Any = None) -> None:
        self._job = job
        self._keys = KeyMap(job.messages, job.rules.buffer_bytes, machine)
        self._machine = machine
        rules = job.rules
        stay_ms = max(rules.tombstones_ms, 1)  # the first run that meets a tombstone retains it
        self._stay_since_ms = job.now_ms - stay_ms if rules.tombstones_ms >= 0 else sys.maxsize
        self._keeping = Keeping(rules.null_keys, True, empty_deletes=rules.tombstones_ms < 0)
        self._letting_go = self._keeping._replace(tombstones=False)
        self._whole = WholeMessages()
        self._before = WholeMessages()
        self._notes_copies = job.looks_back
        """Whether this run notes the keys of all copies, also those that earlier runs have noted."""
        # Of the second pass: producers whose transactions it met something of since their last markers, whether it met
        # what may hold any key, and the keys of pieces that stay.
        self._writing: set[int] = set()
        self._holds = False
        self._held_keys: set[bytes] = set()

    def note(self, entries: Sequence[StoredEntry]) -> int:
        """Note the keys of entries; return for how many of them there was room for all keys."""
        decided, machine, keys = self._job.decided, self._machine, self._keys
        for noted, entry in enumerate(entries):
            try:
                opened = open_entry(entry.data, decided, machine)
            except RecordsError:
                continue  # the second pass says so
            if isinstance(opened, OpenedEntry):
                if not keys.note(opened):
                    return noted
            elif opened.piece is not None and not self._note_piece(entry.last_offset, opened.piece):
                return noted
        return len(entries)

    def _note_piece(self, offset: int, piece: MessagePiece) -> bool:
        is_last = piece.number == piece.of - 1
        if self._whole.is_full or (is_last and piece.key is not None and not self._keys.reserve()):
            return False
        if self._whole.note(offset, piece) and piece.key is not None:
            self._keys.note_reserved(piece.key, offset)
        return True

    def looks_back(self) -> bool:
        """Return whether the existing copies have to be searched for the beginnings of chunked messages."""
        return self._job.looks_back or bool(self._whole.orphans)

    def look_back(self, copies: Sequence[StoredEntry]) -> None:
        """Search copies of an earlier run for pieces, and for keys that are not noted; before any is copied."""
        for entry in copies:
            try:
                opened = open_entry(entry.data, self._job.decided, self._machine)
            except RecordsError:
                continue
            if isinstance(opened, OpenedEntry):
                self._notes_copies = self._notes_copies and self._keys.note(opened)
            elif opened.piece is not None and not self._before.is_full:
                self._before.note(entry.last_offset, opened.piece)

    def copy(self, entries: Sequence[StoredEntry], *, are_copies: bool) -> Copies:
        """Return what is left of entries, originals or copies of an earlier run; raise ``LedgerCorrupt``."""
        if self._whole.orphans:
            for offset, piece in self._whole.join(self._before):
                if piece.key is not None:
                    self._keys.note_reserved(piece.key, offset)
        copies = Copies()
        for entry in entries:
            try:
                came = (
                    copied_from(entry.data)
                    if are_copies
                    else Copied(entry.ledger_id, entry.entry_id, self._job.now_ms)
                )
            except EntryCorrupt as error:
                raise LedgerCorrupt(f"entry {entry.ledger_id}:{entry.entry_id}: {error}") from None
            if entry.last_offset >= self._job.first_offset:
                self._copy(entry, came, copies, is_copy=are_copies)
        return copies

    def _copy(self, entry: StoredEntry, came: Copied, copies: Copies, *, is_copy: bool) -> None:
        machine = self._machine
        try:
            opened = open_entry(entry.data, self._job.decided, machine)
        except RecordsError as error:
            copies.complaints.append(f"entry {came.ledger_id}:{came.entry_id} is kept as it is: {error}")
            opened = UndividedEntry(EntryKind.HELD, 0)
        if isinstance(opened, UndividedEntry):
            self._copy_undivided(entry, came, opened, copies, is_copy=is_copy)
            return
        keeping = self._keeping if self._holds or self._stays(came) else self._letting_go
        if opened.producer_id != NO_PRODUCER:
            self._writing.add(opened.producer_id)
            noted = not is_copy or came.noted or self._notes_copies
            keeping = keeping if noted else self._keeping
            came = came._replace(noted=noted)
            if not noted:  # its deletions may have been noted only by an earlier run
                self._holds = copies.unnoted = True
        if self._held_keys:
            keeps = [kept_deletions(part, self._keys, keeping, self._held_keys) for part in opened.parts]
        else:
            keeps = [kept_rows(part, self._keys, keeping) for part in opened.parts]
        stay = sum(count_of(keep, machine) for keep in keeps)
        there = sum(there_were(part, machine) for part in opened.parts)
        copies.removed += there - stay
        if stay == there and stay:
            _add(copies, entry, came, [behind_broker_head(entry.data)])
        elif stay:
            came = came._replace(there=bits_of(opened, keeps, machine))
            _add(copies, entry, came, rewritten(entry.data, opened, keeps, machine))

    def _copy_undivided(
        self, entry: StoredEntry, came: Copied, opened: UndividedEntry, copies: Copies, *, is_copy: bool
    ) -> None:
        is_of_open = opened.producer_id in self._writing
        if opened.producer_id != NO_PRODUCER:
            self._writing.add(opened.producer_id)
        match opened.kind:
            case EntryKind.ABORTED:
                copies.removed += opened.messages
                return
            case EntryKind.MARKER:
                self._writing.discard(opened.producer_id)
                if is_of_open or not self._job.decided.is_known:
                    came = came._replace(since_ms=self._job.now_ms)
                elif not self._stays(came):
                    copies.ended.append(entry.last_offset)
                    return
            case EntryKind.PIECE:
                piece, end = opened.piece, max(came.ends_at, self._whole.end_of(entry.last_offset))
                assert piece is not None
                if end < 0:
                    if is_copy and self._whole.began_anew(piece.uuid):
                        return  # no reader looks for what would complete it
                    if piece.key is not None:
                        self._held_keys.add(piece.key)
                elif self._goes(piece, end):
                    copies.removed += entry.last_offset == end
                    return
                came = came._replace(ends_at=end)
            case EntryKind.HELD:
                self._holds = True
        _add(copies, entry, came, [behind_broker_head(entry.data)])

    def _goes(self, piece: MessagePiece, end: int) -> bool:
        """Return whether a whole chunked message that ends at an offset goes."""
        if piece.key is None:
            return not self._job.rules.null_keys
        return self._keys.is_superseded(piece.key, end)

    def _stays(self, came: Copied) -> bool:
        """Return whether it is too early for a deletion or a marker to go."""
        return came.since_ms > self._stay_since_ms


def _add(copies: Copies, entry: StoredEntry, came: Copied, message: list[Buffer]) -> None:
    broker = index_of(entry.data)
    data = b"".join((copied_head(broker.broker_timestamp, broker.index, came), *message))
    copies.entries.append(NewEntry(data, entry.last_offset, latest_timestamp(memoryview(data))))
    copies.origins.append(came.ledger_id)


def machine_code() -> Any:
    """Return the kernels, or None; loading them holds up the whole process for seconds."""
    return compaction.machine_code()
