"""The two passes of a compaction over entries: which message is the last of its key, and what is copied.

Pure functions of entries in, entries out, with the map of keys between them; in a thread or in a process of its own
(`magnetar.ledger.compaction_workers`), for they take the processor's time. Kafka's and PIP-14's rules are those of
`magnetar.records.compaction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.ledger.compaction_job import Copies, Job
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.port import NewEntry, StoredEntry
from magnetar.records import compaction
from magnetar.records.compaction import (
    Keeping,
    KeyMap,
    bits_of,
    count_of,
    kept_rows,
    open_entry,
    rewritten,
    there_were,
)
from magnetar.records.compression import Buffer
from magnetar.records.copied import Copied, behind_broker_head, copied_from, copied_head
from magnetar.records.entry import index_of, latest_timestamp
from magnetar.records.errors import EntryCorrupt, RecordsError


class Passes:
    """One run's map of keys, and what is done by it. First `note` what is to be compacted, then `copy` it."""

    def __init__(self, job: Job, machine: Any = None) -> None:
        self._job = job
        self._keys = KeyMap(job.messages, job.rules.buffer_bytes, machine)
        self._machine = machine

    def note(self, entries: Sequence[StoredEntry]) -> int:
        """Note the keys of entries; return of how many of them there was room for all keys."""
        for noted, entry in enumerate(entries):
            try:
                opened = open_entry(entry.data, self._machine)
            except RecordsError:
                continue  # the second pass says so
            if opened is not None and not self._keys.note(opened):
                return noted
        return len(entries)

    def copy(self, entries: Sequence[StoredEntry], *, are_copies: bool) -> Copies:
        """Return what is left of entries, originals or copies of an earlier run; raise ``LedgerCorrupt``."""
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
                self._copy(entry, came, copies)
        return copies

    def _copy(self, entry: StoredEntry, came: Copied, copies: Copies) -> None:
        try:
            opened = open_entry(entry.data, self._machine)
        except RecordsError as error:
            copies.complaints.append(f"entry {came.ledger_id}:{came.entry_id} is kept as it is: {error}")
            opened = None
        if opened is None:
            _add(copies, entry, came, [behind_broker_head(entry.data)])
            return
        machine, keeping = self._machine, self._keeping(came)
        keeps = [kept_rows(part, self._keys, keeping) for part in opened.parts]
        stay = sum(count_of(keep, machine) for keep in keeps)
        there = sum(there_were(part, machine) for part in opened.parts)
        copies.removed += there - stay
        if stay == there and stay:
            _add(copies, entry, came, [behind_broker_head(entry.data)])
        elif stay:
            came = came._replace(there=bits_of(opened, keeps, machine))
            _add(copies, entry, came, rewritten(entry.data, opened, keeps, machine))

    def _keeping(self, came: Copied) -> Keeping:
        rules = self._job.rules
        stay_ms = max(rules.tombstones_ms, 1)  # the first run that meets a tombstone keeps it
        stay = rules.tombstones_ms >= 0 and self._job.now_ms < came.since_ms + stay_ms
        return Keeping(rules.null_keys, stay, empty_deletes=rules.tombstones_ms < 0)


def _add(copies: Copies, entry: StoredEntry, came: Copied, message: list[Buffer]) -> None:
    broker = index_of(entry.data)
    data = b"".join((copied_head(broker.broker_timestamp, broker.index, came), *message))
    copies.entries.append(NewEntry(data, entry.last_offset, latest_timestamp(memoryview(data))))
    copies.origins.append(came.ledger_id)


def machine_code() -> Any:
    """Return the kernels, or None; loading them holds up the whole process for seconds."""
    return compaction.machine_code()
