"""Places in one partition as Pulsar's clients name them: by message id, by time, first and last."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.ledger.port import ManagedLedger, Position, StoredEntry
from magnetar.logs.decided import last_message
from magnetar.records.compression import Buffer
from magnetar.records.entry import decode_entry, index_of


class Places:
    """Those of one log."""

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log

    async def of(self, place: tuple[int, int]) -> Position:
        """Return the entry that a client names, or the nearest one behind it that there is or will be."""
        end = await self.end()
        for ledger in self._log.ledgers():
            if place[0] < ledger.ledger_id:
                return min(Position(ledger.ledger_id, 0), end)
            if place[0] == ledger.ledger_id and place[1] < ledger.entries:
                return min(Position(ledger.ledger_id, max(place[1], 0)), end)
        return end

    async def end(self) -> Position:
        """Return the place right behind the last entry that may be read."""
        last = await self.last()
        return Position(last.ledger_id, last.entry_id + 1)

    async def last(self) -> Position:
        """Return the place of the last entry that may be read; with entry id -1 where there is none.

        What is being made durable lies behind it: a subscription that began there would miss it, and one that had
        passed over it what takes its place after the power failed.
        """
        log, ledgers = self._log, self._log.ledgers()
        if not ledgers:
            return Position(-1, -1)
        if log.last_stable_offset == log.log_end_offset:
            return Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1)
        found = await self.last_entry()
        return (
            Position(ledgers[0].ledger_id, -1) if found is None else Position(found.ledger_id, found.entry_id)
        )

    def bytes_behind(self, mark: Position) -> int:
        """Return about how many bytes lie behind a position: of its own ledger the share of the entries."""
        size = 0
        for ledger in self._log.ledgers():
            if ledger.ledger_id > mark.ledger_id:
                size += ledger.size
            elif ledger.ledger_id == mark.ledger_id and ledger.entries:
                size += ledger.size * max(ledger.entries - mark.entry_id - 1, 0) // ledger.entries
        return size

    def entries_between(self, mark: Position, following: Position) -> int:
        """Return how many entries lie behind ``mark`` and before ``following``, of those that there are."""
        entries = 0
        for ledger in self._log.ledgers():
            if mark.ledger_id <= ledger.ledger_id <= following.ledger_id:
                start = mark.entry_id + 1 if ledger.ledger_id == mark.ledger_id else 0
                end = following.entry_id if ledger.ledger_id == following.ledger_id else ledger.entries
                entries += max(min(end, ledger.entries) - start, 0)
        return entries

    async def at(self, timestamp_ms: int) -> Position:
        """Return the first entry that was published at that time or later, or the end; its producer says when.

        Clients seek to the time that a message tells. That it grows from message to message is taken for granted, as by
        Pulsar.
        """
        return await self._first(lambda data: decode_entry(data).message.publish_time >= timestamp_ms)

    async def _first(self, is_late: Callable[[Buffer], bool]) -> Position:
        found = await self._log.find_first(lambda entry: is_late(entry.data))
        return await self.end() if found is None else Position(found.ledger_id, found.entry_id)

    async def last_message(self, *, compacted: bool = False) -> StoredEntry | None:
        """Return the last entry that some consumer gets: as `last_entry`, but no marker, and nothing aborted."""
        log = self._log
        if not log.has_transactions:
            return await self.last_entry(compacted=compacted)
        return await last_message(log, log.last_stable_offset, compacted=compacted)

    async def last_entry(self, *, compacted: bool = False) -> StoredEntry | None:
        """Return the last entry that may be read, by readers of what is compacted or by any, or None."""
        log, copies = self._log, self._log.compacted
        last = log.last_stable_offset - 1
        entries = []
        if last >= log.log_start_offset and not (
            compacted and copies is not None and copies.horizon_offset >= last
        ):
            entries = await log.read(last, max_bytes=1)
        if entries or copies is None or not copies.ledger.entries or copies.horizon_offset < last:
            return entries[-1] if entries else None
        if compacted or copies.ledger.last_offset >= log.log_start_offset:
            entries = await log.read_compacted(copies.ledger.last_offset, max_bytes=1)
        return entries[-1] if entries else None

    async def last_before(self, timestamp_ms: int) -> Position | None:
        """Return the place of the last entry that was stored before that time, or None if there are no ledgers."""
        position = await self._first(lambda data: index_of(data).broker_timestamp >= timestamp_ms)
        return None if position.ledger_id < 0 else Position(position.ledger_id, position.entry_id - 1)
