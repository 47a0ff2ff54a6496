"""The list of a managed ledger's ledgers, as the metadata store has it.

It is read when the log is opened, and changed here alone: a change is made to a copy, and counts when it is committed.
Each commit expects the version that the last one wrote, so that another owner is noticed: this one is fenced then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerFenced, metadata_failed
from magnetar.ledger.formats.info import ManagedLedgerInfo, encode_info, path_of
from magnetar.ledger.values import LedgerSummary
from magnetar.metadata.errors import BadVersion, MetadataError, MetadataUncertain
from magnetar.metadata.ops import MUST_NOT_EXIST, Check, Op, Put
from magnetar.metadata.port import MetadataStore

_TRIES = 3
BOOT, FIRST, NEXT, EPOCH = "boot", "first_offset", "next_offset", "epoch"
TRANSACTIONS = "transactions"
"""Of the list's properties: there have been transactions in the log."""
STARTS = "leader_epochs"
"""Of the list's properties: where each leader epoch began (`magnetar.ledger.epoch_starts`)."""


class _MayBeKept(LedgerFenced):
    """Another owner has the log, and may have gone on from what this one meant to change."""


class LedgerList:
    """``info`` is what was committed last; it is never changed in place but for what is told of the open ledger."""

    def __init__(
        self,
        store: MetadataStore,
        name: str,
        boot: str,
        info: ManagedLedgerInfo,
        version: int,
        lost: Callable[[LedgerError], None],
    ) -> None:
        self.info = info
        self.epoch = 0
        """Of the ownership under which it was opened."""
        self.starts: str | None = None
        """What is to be committed of where leader epochs began; None leaves what there is."""
        self.changing = asyncio.Lock()
        """Held while a change is on its way: no other one begins."""
        self._store = store
        self._name = name
        self._boot = boot
        self._version = version
        self._lost = lost
        self._ended: LedgerError | None = None

    @property
    def is_of_this_boot(self) -> bool:
        """True if a power loss of this boot is known to be able to tear what is written from now on."""
        return self.info.properties.get(BOOT) == self._boot

    def end(self, reason: LedgerError) -> None:
        """Commit nothing any more: of this name there may soon be another log, whose versions begin anew."""
        self._ended = reason

    @property
    def claim(self) -> Check | None:
        """What holds in the store only while no other owner has taken the log; None while it has no node."""
        return None if self._version == MUST_NOT_EXIST else Check(path_of(self._name), self._version)

    async def is_ours(self) -> bool:
        """Look in the store whether no other owner has taken the log; one that was taken is lost from then on.

        Raises ``MetadataError``.
        """
        async with self.changing:  # what is on its way makes the version higher
            if self._ended is not None:
                return False
            stored = await self._store.get(path_of(self._name))
            version = MUST_NOT_EXIST if stored is None else stored.version
            if version == self._version:
                return True
            self._fenced(BadVersion(path_of(self._name), self._version, version), LedgerFenced)
            return False

    async def begin(self) -> None:
        """Have the log's node be there: what lies beneath it is stored behind it, as the store's port asks.

        A store may make a parent that is missing, whose version this list would not know: its first ledger would look
        like another owner's doing. Raises as `change` does.
        """
        if self._version == MUST_NOT_EXIST:
            await self.change(lambda info: self._version == MUST_NOT_EXIST)  # somebody may be quicker

    async def change(
        self,
        make: Callable[[ManagedLedgerInfo], bool],
        counts: Callable[[], None] = lambda: None,
        refused: Callable[[], None] = lambda: None,
        beside: Callable[[], Sequence[Op]] = tuple,
    ) -> bool:
        """Commit what ``make`` makes of a copy, unless it returns False; call ``counts`` as soon as that counts.

        What ``beside`` returns is part of the same commit. Returns whether there was anything to commit. Raises
        ``LedgerFenced``, ``StorageFull`` or ``StorageFailed``; then nothing has changed, and ``refused`` was called.
        ``LedgerClosed`` if that is not known: the log is to be opened anew. Nor is it known where another owner came
        before the store could tell, and ``refused`` is not called then. A change goes on when whoever asked for it is
        cancelled: what has to follow it stands in the two.
        """
        return await asyncio.shield(asyncio.ensure_future(self._change(make, counts, refused, beside)))

    async def _change(
        self,
        make: Callable[[ManagedLedgerInfo], bool],
        counts: Callable[[], None],
        refused: Callable[[], None],
        beside: Callable[[], Sequence[Op]],
    ) -> bool:
        async with self.changing:
            if self._ended is not None:
                raise self._ended
            info = self.info.copy()
            if not make(info):
                return False
            if info.ledgers:
                info.properties[NEXT] = str(info.ledgers[-1].first_offset)
            info.properties[BOOT] = self._boot
            if self.epoch:
                info.properties[EPOCH] = str(self.epoch)
            if self.starts is not None:
                info.properties[STARTS] = self.starts
            try:
                await self._commit(encode_info(info), beside())
            except (LedgerClosed, _MayBeKept):
                raise
            except LedgerError:
                refused()
                raise
            self.info = info
            counts()
            return True

    async def _commit(self, value: bytes, beside: Sequence[Op]) -> None:
        path, kind = path_of(self._name), LedgerFenced  # what it means if another one wrote
        for tries_left in reversed(range(_TRIES)):
            try:
                self._version, *_ = await self._store.commit([Put(path, value, self._version), *beside])
                return
            except BadVersion as error:
                raise self._fenced(error, kind) from error
            except MetadataUncertain as error:
                kind = _MayBeKept
                if await self._is_kept(path, value, error):
                    return
                if not tries_left:
                    raise metadata_failed(error) from error
            except MetadataError as error:
                raise metadata_failed(error) from error

    async def _is_kept(self, path: str, value: bytes, uncertain: MetadataUncertain) -> bool:
        """Look whether what was committed is there, as the store could not tell."""
        try:
            stored = await self._store.get(path)
        except MetadataError:
            closed = LedgerClosed(f"managed ledger {self._name} must be opened anew: {uncertain}")
            self._lost(closed)
            raise closed from uncertain
        version = -1 if stored is None else stored.version
        if version == self._version:
            return False
        if stored is None or stored.value != value:
            raise self._fenced(uncertain, _MayBeKept) from uncertain
        self._version = version
        return True

    def _fenced(self, error: MetadataError, kind: type[LedgerFenced]) -> LedgerFenced:
        fenced = kind(f"managed ledger {self._name} has another owner: {error}")
        self._lost(fenced)
        return fenced


def check_epoch(info: ManagedLedgerInfo, name: str, epoch: int) -> None:
    """Raise ``LedgerFenced`` if a log was opened, and its list changed, under a later ownership than this one."""
    latest = int(info.properties.get(EPOCH, 0))
    if 0 < epoch < latest:
        raise LedgerFenced(
            f"managed ledger {name} was opened under epoch {latest}, which is later than {epoch}"
        )


def changed(info: ManagedLedgerInfo, ledger_id: int) -> LedgerSummary | None:
    """Return a copy of a ledger's summary that stands in the list in its place; None if it is not there any more."""
    for at, each in enumerate(info.ledgers):
        if each.ledger_id == ledger_id:
            info.ledgers[at] = replace(each)
            return info.ledgers[at]
    return None
