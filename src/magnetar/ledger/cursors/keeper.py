"""Writes what cursors have changed: those of all logs of an engine that are due, many with one commit.

Each cursor is one node of the metadata, written with the version that this owner wrote last, and only while the log is
still this owner's: a commit checks the lists of the logs whose cursors it writes. If a node has another version
although the log is this owner's, a former owner wrote it late (or a person did): the owner takes the new version and
writes its own state over it, as Pulsar's ``ManagedCursorImpl.persistPositionMetaStore`` does. A state that is too large
for a node goes into a ledger of the cursor first, and the node then names it. One commit runs at a time; a caller that
waits for a cursor returns when a commit has it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from magnetar.ledger.cursors.store import CursorLedgers
from magnetar.ledger.errors import LedgerError, LedgerFenced, StorageFailed, metadata_failed
from magnetar.ledger.formats.cursor_info import CursorInfo, encode_cursor, encode_state, ledger_of
from magnetar.metadata import (
    ANY,
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    MetadataError,
    MetadataFailed,
    MetadataStore,
    MetadataUncertain,
    Op,
    Put,
    Stored,
)

LARGE_BYTES = 128 << 10
"""A larger state goes into a ledger of the cursor: a commit takes a megabyte, and others are in it."""
_COMMIT_BYTES = 512 << 10
_COMMIT_CURSORS = 1000
_SLICE_S = 0.002
_log = logging.getLogger("magnetar.ledger")


class OwnedLog(Protocol):
    """The claim that an owner has on the log whose cursors it writes."""

    @property
    def claim(self) -> Check | None:
        """Return a condition that holds in the store only while the log is this owner's; None before it has a node."""
        ...

    async def is_ours(self) -> bool:
        """Return whether the log is still this owner's; raise ``MetadataError``. One that is not is closed."""
        ...

    async def begin(self) -> None:
        """Create the log's own node, if it is missing: cursors lie below it."""
        ...


@dataclass(eq=False, slots=True)
class KeptCursor:
    """One durable cursor: its node, and what is not stored yet."""

    path: str
    version: int = MUST_NOT_EXIST
    log: OwnedLog | None = None
    """The log that it belongs to, if that has a claim to check."""
    must_be_new: bool = False
    """Whether it is being created: an existing node is another cursor, which stays."""
    ledger_id: int = -1
    """The ledger with its state, -1 for none."""
    others: bytes = b""
    """Fields of its node that this broker does not know."""
    due: Callable[[], CursorInfo] | None = None
    """Returns its state, if that is not stored yet."""
    saved_ms: int = 0
    end: LedgerError | None = None
    """Why nothing of it is stored any more."""
    to_delete: bool = False
    unsure: bytes | None = None
    """The last value written, if it is unknown whether it was stored."""
    is_being_written: bool = False
    """Whether what was due is being written."""
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


@dataclass(slots=True)
class _Write:
    cursor: KeptCursor
    op: Put | Delete
    waiting: list[asyncio.Future[None]]
    due: Callable[[], CursorInfo] | None
    ledger_id: int = -1
    replaced_id: int = -1
    """The ledger of a former owner's state, if that is overwritten."""


class CursorKeeper:
    """The one writer of an engine's cursors."""

    def __init__(self, store: MetadataStore, ledgers: CursorLedgers, clock: Callable[[], int]) -> None:
        self.store = store
        self.ledgers = ledgers
        self.clock = clock
        self._queue: dict[KeptCursor, None] = {}
        self._writing: asyncio.Task[None] | None = None

    def soon(self, cursor: KeptCursor) -> None:
        """Schedule a cursor for the next commit; changes until then go along."""
        self._queue[cursor] = None
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def written(self, cursors: Iterable[KeptCursor]) -> None:
        """Write cursors, and return when they are durable; raise ``LedgerError`` if one was not stored."""
        futures = []
        for cursor in cursors:
            futures.append(asyncio.get_running_loop().create_future())
            cursor.waiting.append(futures[-1])
            self.soon(cursor)
        if futures:
            await asyncio.gather(*futures)

    async def passed(self, cursors: Iterable[KeptCursor]) -> None:
        """Return when what is being written of cursors now is stored or refused."""
        waiting = []
        for cursor in cursors:
            if cursor.is_being_written:
                waiting.append(asyncio.get_running_loop().create_future())
                cursor.waiting.append(waiting[-1])
                self.soon(cursor)
        await asyncio.gather(*waiting, return_exceptions=True)

    async def idle(self) -> None:
        """Return when nothing is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        try:
            while self._queue:
                await self._commit(await self._gathered())
        finally:
            self._writing = None

    async def _gathered(self) -> list[_Write]:
        """Return the writes of one commit; the event loop gets turns meanwhile."""
        writes: list[_Write] = []
        again: dict[KeptCursor, None] = {}
        size, until = 0, time.perf_counter() + _SLICE_S
        while self._queue and size < _COMMIT_BYTES and len(writes) < _COMMIT_CURSORS:
            cursor = next(iter(self._queue))
            del self._queue[cursor]
            if cursor.is_being_written:  # by this commit: a caller that waits from now on returns after it
                again[cursor] = None
                continue
            write = await self._prepared(cursor)
            if write is not None:
                cursor.is_being_written = True
                writes.append(write)
                size += 2 * len(write.op.path) + (len(write.op.value) if isinstance(write.op, Put) else 0)
            if time.perf_counter() > until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _SLICE_S
        self._queue |= again
        return writes

    async def _prepared(self, cursor: KeptCursor) -> _Write | None:
        """Take what is due of a cursor; None if nothing is, or it cannot be stored."""
        waiting, cursor.waiting = cursor.waiting, []
        due, cursor.due = cursor.due, None
        if cursor.to_delete:
            return _Write(cursor, Delete(cursor.path, ANY), waiting, None)
        if cursor.end is not None or due is None:
            _tell(waiting, cursor.end)
            return None
        write = _Write(cursor, Put(cursor.path, b"", cursor.version), waiting, due)
        cursor.is_being_written = True
        try:
            await self._encode(write, due())
        except LedgerError as error:
            _failed(write, error)
            return None
        except Exception as error:  # the others continue, and this one's callers get the error
            _log.exception("the state of cursor %s cannot be written", cursor.path)
            _failed(write, StorageFailed(f"the state of cursor {cursor.path} cannot be written: {error!r}"))
            return None
        return write

    async def _encode(self, write: _Write, state: CursorInfo) -> None:
        cursor = write.cursor
        info = replace(state, last_active_ms=self.clock(), ledger_id=-1, others=cursor.others)
        data = encode_cursor(info)
        if len(data) > LARGE_BYTES:
            write.ledger_id = await self.ledgers.write(encode_state(info))
            data = encode_cursor(replace(info, ledger_id=write.ledger_id))
        write.op = Put(cursor.path, data, cursor.version)

    async def _commit(self, writes: list[_Write]) -> None:
        try:
            await self._committed(writes)
        except Exception as error:
            _log.exception("cursors cannot be kept")
            self._all_failed([each for each in writes if each.cursor.is_being_written], error)

    async def _committed(self, writes: list[_Write]) -> None:
        """Commit as many together as possible; return when each is stored or refused."""
        while writes:
            try:
                versions = await self.store.commit([*(each.op for each in writes), *_claims(writes)])
            except BadVersion as error:
                await self._settle(writes, error)
                continue
            except MetadataFailed as error:
                self._all_failed(writes, error)
                return
            except MetadataError as error:  # one of them cannot be stored at all: the others must not suffer
                if len(writes) == 1:
                    self._all_failed(writes, error)
                else:
                    for each in writes:
                        await self._committed([each])
                return
            for write, version in zip(writes, versions, strict=False):  # claims have versions, too
                self._done(write, version)
            return

    async def _settle(self, writes: list[_Write], error: BadVersion) -> None:
        """Retain in ``writes`` what has to be retried after a commit that found another version of one node."""
        one = next((each for each in writes if each.op.path == error.path), None)
        if one is not None:
            writes.remove(one)
            if await self._may_go_on(one):
                writes.append(one)
            return
        of_log = [each for each in writes if (claim := _claim_of(each)) and claim.path == error.path]
        if not of_log:
            self._all_failed(writes, error)
            writes.clear()
            return
        writes[:] = [each for each in writes if each not in of_log]
        try:
            is_ours = await _is_ours(of_log[0])
        except MetadataError as failed:
            self._all_failed(of_log, failed)
            return
        if is_ours:  # its list was changed while the commit was on its way
            writes.extend(of_log)
        else:
            for each in of_log:
                self._fence(each)

    async def _may_go_on(self, write: _Write) -> bool:
        """Find out about another version of a cursor's node; return whether to try again with it."""
        cursor, op = write.cursor, write.op
        if isinstance(op, Delete):
            self._done(write, MUST_NOT_EXIST)  # it was never stored
            return False
        try:
            is_ours = await _is_ours(write)
            stored = await self.store.get(cursor.path)
        except MetadataError as error:
            self._all_failed([write], error)
            return False
        if stored is None or stored.value != cursor.unsure or cursor.unsure is None:
            if not is_ours or (cursor.must_be_new and stored is not None):
                self._fence(write)
                return False
            _log.warning("cursor %s was changed by another than its owner, which goes on", cursor.path)
            write.replaced_id = -1 if stored is None else ledger_of(stored)
        cursor.version, cursor.unsure = _version_of(stored), None
        write.op = op._replace(expected=cursor.version)
        return True

    def _fence(self, write: _Write) -> None:
        """Stop writing a cursor that belongs to another owner."""
        cursor = write.cursor
        cursor.end = LedgerFenced(f"the cursor at {cursor.path} has another owner")
        cursor.is_being_written = False
        self._forget(write.ledger_id)
        _tell(write.waiting, cursor.end)

    def _all_failed(self, writes: list[_Write], error: Exception) -> None:
        for write in writes:
            if isinstance(error, MetadataUncertain) and isinstance(write.op, Put):
                write.cursor.unsure = write.op.value
            else:
                self._forget(write.ledger_id)
            _failed(write, metadata_failed(error))

    def _done(self, write: _Write, version: int) -> None:
        cursor = write.cursor
        self._forget(cursor.ledger_id)
        if write.replaced_id not in (cursor.ledger_id, write.ledger_id):
            self._forget(write.replaced_id)
        cursor.ledger_id, cursor.version, cursor.must_be_new = write.ledger_id, version, False
        cursor.saved_ms, cursor.unsure = self.clock(), None
        cursor.is_being_written = False
        if isinstance(write.op, Delete):
            cursor.to_delete = False
        _tell(write.waiting, None)

    def _forget(self, ledger_id: int) -> None:
        if ledger_id >= 0:
            self.ledgers.forget([ledger_id])


def _claim_of(write: _Write) -> Check | None:
    log = write.cursor.log
    return None if log is None else log.claim


async def _is_ours(write: _Write) -> bool:
    log = write.cursor.log
    return log is not None and await log.is_ours()


def _claims(writes: list[_Write]) -> list[Op]:
    """Return the conditions of a commit: that each log is still this owner's."""
    logs = {id(log): log for each in writes if (log := each.cursor.log) is not None}
    return [claim for log in logs.values() if (claim := log.claim) is not None]


def _version_of(stored: Stored | None) -> int:
    return MUST_NOT_EXIST if stored is None else stored.version


def _failed(write: _Write, error: LedgerError) -> None:
    """Mark what was not stored as due again, unless it has changed since."""
    cursor = write.cursor
    cursor.due = cursor.due or write.due
    cursor.is_being_written = False
    if not write.waiting:
        _log.error("%s cannot be kept: %s", cursor.path, error)
    _tell(write.waiting, error)


def _tell(waiting: list[asyncio.Future[None]], error: LedgerError | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
