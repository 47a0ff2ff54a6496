"""The cursors of one log in the metadata store, at Pulsar's path ``/managed-ledgers/<log>/<cursor>``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from magnetar.ledger.cursors.cursor import BEFORE_FIRST, Cursor, CursorLog, Start
from magnetar.ledger.cursors.keeper import CursorKeeper, KeptCursor, OwnedLog
from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerNotFound,
    OffsetOutOfRange,
    metadata_failed,
)
from magnetar.ledger.formats.cursor_info import (
    CursorInfo,
    cursor_path,
    decode_cursor,
    decode_state,
    ledger_of,
)
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.values import Position, StoredEntry
from magnetar.metadata import MetadataError, Stored
from magnetar.metadata.parts import get_value, is_head
from magnetar.metadata.segments import decoded


class CursorsLog(CursorLog, Protocol):
    """The further methods of a log that its cursors use (`magnetar.ledger.port.ManagedLedger`)."""

    log_end_offset: int

    @property
    def last_stable_offset(self) -> int: ...

    async def read(self, offset: int, *, max_bytes: int, up_to: int | None = None) -> list[StoredEntry]: ...


class KeptCursors(CursorStore):
    """Stores the cursors of one log with all others of its engine. Call ``load`` before use.

    ``owned`` is the claim on the log, for an engine that stores its list in the same store.
    """

    def __init__(self, log: CursorsLog, keeper: CursorKeeper, owned: OwnedLog | None = None) -> None:
        self.watchers = []
        self._log = log
        self._keeper = keeper
        self._owned = owned
        self._kept: dict[str, KeptCursor] = {}
        self._infos: dict[str, Stored] = {}
        """The nodes of cursors that were not opened yet."""
        self._open: dict[str, Cursor] = {}
        self._due: dict[str, KeptCursor] = {}
        """Changed cursors; whether they have been stored since is checked on demand."""
        self._is_closed = False

    async def load(self) -> None:
        """Read which cursors there are."""
        store, path = self._keeper.store, path_of(self._log.name)
        try:
            found = await store.children(path)
            stored = await store.get_many([f"{path}/{name}" for name in found])
        except MetadataError as error:
            raise metadata_failed(error) from error
        for name, value in zip(found, stored, strict=True):
            if value is not None:
                self._kept[decoded(name)] = KeptCursor(f"{path}/{name}", value.version, self._owned)
                self._infos[decoded(name)] = value

    def names(self) -> list[str]:
        return sorted(self._kept)

    async def open(self, name: str, start: Start = Start.latest) -> Cursor:
        kept = self._kept.get(name)
        if kept is None:
            return await self._made(name, start)
        if name not in self._open:
            info = await self.read(name)
            if self._kept.get(name) is not kept:  # it was deleted meanwhile
                return await self.open(name, start)
            if info is None:
                raise LedgerFenced(f"cursor {name} of {self._log.name} has another owner, who deleted it")
            if name not in self._open:  # no other call was faster
                self._open[name] = self._cursor(name, kept, info)
                self._infos.pop(name, None)
        cursor = self._open[name]
        if kept.version < 0:
            await self._keeper.written([kept])  # another call is creating it
        return cursor

    async def _made(self, name: str, start: Start) -> Cursor:
        if self._owned is not None:
            await self._owned.begin()
        info = await self._beginning(start)
        if name in self._kept:  # another call was faster
            return await self.open(name, start)
        kept = self._kept[name] = KeptCursor(
            cursor_path(self._log.name, name), log=self._owned, must_be_new=True
        )
        cursor = self._open[name] = self._cursor(name, kept, info)
        kept.due = lambda: info
        try:
            await self._keeper.written([kept])
        except LedgerError as error:
            if self._kept.get(name) is kept and kept.unsure is None:  # otherwise the next open finds out
                del self._kept[name], self._open[name]
                kept.end = kept.end or error
                if isinstance(error, LedgerFenced) and await self._was_made(name, kept.path):
                    return await self.open(name, start)
            raise
        return cursor

    async def _was_made(self, name: str, path: str) -> bool:
        """Return whether a cursor to create exists already, created by a former owner of the log."""
        try:
            if self._owned is None or not await self._owned.is_ours():
                return False
        except MetadataError as error:
            raise metadata_failed(error) from error
        kept = KeptCursor(path, log=self._owned)
        stored = await self._stored(kept)
        if stored is None or name in self._kept:
            return name in self._kept
        kept.version = stored.version
        self._kept[name], self._infos[name] = kept, stored
        return True

    def _cursor(self, name: str, kept: KeptCursor, info: CursorInfo) -> Cursor:
        return Cursor(self._log, name, info, lambda changed: self._changed(name, kept, changed))

    async def read(self, name: str) -> CursorInfo | None:
        stored, kept = self._infos.get(name), self._kept.get(name)
        if kept is None:
            return None
        if kept.due is not None:
            return kept.due()
        if stored is None or is_head(stored.value):  # sequence ids were in parts before cursors had ledgers
            stored = await self._stored(kept)
        if stored is None:
            return None
        info = decode_cursor(stored.value, name=kept.path)
        if info.ledger_id >= 0:
            info = await self._with_state(kept, info)
        kept.others, kept.ledger_id = info.others, info.ledger_id
        return replace(info, ledger_id=-1)

    async def _stored(self, kept: KeptCursor) -> Stored | None:
        try:
            return await get_value(self._keeper.store, kept.path)
        except MetadataError as error:
            raise metadata_failed(error) from error

    async def _with_state(self, kept: KeptCursor, info: CursorInfo) -> CursorInfo:
        try:
            state = await self._keeper.ledgers.read(info.ledger_id)
        except LedgerNotFound:
            raise LedgerNotFound(
                f"the state of cursor {kept.path} lies in ledger {info.ledger_id}, which is not here"
            ) from None
        return decode_state(state, info, name=kept.path)

    async def non_durable(self, start: Start = Start.latest) -> Cursor:
        return Cursor(self._log, "", await self._beginning(start), None)

    async def delete(self, name: str) -> None:
        self._open.pop(name, None)
        self._due.pop(name, None)
        stored, kept = self._infos.pop(name, None), self._kept.pop(name, None)
        if kept is None:
            return
        if stored is not None and kept.ledger_id < 0:
            kept.ledger_id = ledger_of(stored)
        kept.end = LedgerFenced(f"cursor {name} of {self._log.name} was deleted")
        kept.to_delete = True
        try:
            await self._keeper.written([kept])
        except LedgerError:  # it still exists, and its unsaved changes are lost
            kept.to_delete, kept.end, kept.due = False, None, None
            self._kept[name] = kept
            raise

    @property
    def unsaved(self) -> bool:
        self._due = {
            name: kept for name, kept in self._due.items() if kept.due is not None or kept.is_being_written
        }
        return bool(self._due)

    async def save(self) -> None:
        if self._is_closed:
            raise LedgerClosed(f"managed ledger {self._log.name} is closed")
        if self._due:
            due, self._due = self._due, {}
            try:
                await self._keeper.written(due.values())
            except LedgerError:
                self._due = due | self._due
                raise

    def change(self, name: str, info: Callable[[], CursorInfo]) -> None:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = KeptCursor(cursor_path(self._log.name, name), log=self._owned)
        self._infos.pop(name, None)
        self._changed(name, kept, info)

    def _changed(self, name: str, kept: KeptCursor, info: Callable[[], CursorInfo]) -> None:
        if kept.end is not None:
            raise kept.end
        kept.due = info
        self._due[name] = kept
        if not self._is_closed and self._keeper.clock() - kept.saved_ms >= self.save_interval_ms:
            self._keeper.soon(kept)
        for notify in self.watchers:
            notify()

    def close(self) -> None:
        """Stop writing the cursors: the next owner of the log finds them as they are stored now."""
        self._is_closed = True

    async def end(self) -> None:
        """Stop writing the cursors, since the log is deleted with them; return when nothing is being written."""
        for name, kept in self._kept.items():
            kept.end = kept.end or LedgerFenced(f"cursor {name} of {self._log.name} was deleted")
        await self._keeper.passed(self._kept.values())

    async def _beginning(self, start: Start) -> CursorInfo:
        ledgers = self._log.ledgers()
        if not ledgers:
            return CursorInfo(Position(-1, BEFORE_FIRST))
        if start is Start.earliest:
            return CursorInfo(Position(ledgers[0].ledger_id, BEFORE_FIRST))
        return CursorInfo(await _last_readable(self._log))


async def _last_readable(log: CursorsLog) -> Position:
    """Return the last entry that may be read, or a place before which there is none.

    Later entries may be taken back: a cursor that began there would skip those that replace them.
    """
    ledgers, end = log.ledgers(), log.last_stable_offset
    if end == log.log_end_offset:
        return Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1)
    if end > log.log_start_offset:
        with suppress(OffsetOutOfRange):  # it was trimmed meanwhile
            if found := await log.read(end - 1, max_bytes=1, up_to=end):
                return Position(found[0].ledger_id, found[0].entry_id)
    # There is nothing to read: it was compacted away, or deleted.
    last = ([each for each in ledgers if each.first_offset < end] or ledgers)[-1]
    return Position(last.ledger_id, last.entries - 1 if last.sealed else BEFORE_FIRST)
