"""A log's ledgers on their way to tiered storage, step by step, on every engine; a crash at any of them loses nothing.

1. the list of ledgers says that an attempt was begun, under which uuid and where
2. the data object is written, then the index object, and their lengths are asked for
3. the list says that it is complete: from now on tiered storage has the ledger
4. later, when policies say so, the list says that it lies there alone, and then the engine's own copy goes

What a crash leaves behind after 1 and 2 has a name in the list: the next attempt notes it to be deleted when it begins
under a uuid of its own. What it leaves after 4 is a copy that the next opening of the log removes.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from magnetar.ledger.errors import CannotOffload, LedgerFenced, metadata_failed
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.ledger_list import LedgerList, changed
from magnetar.ledger.values import LedgerSummary, Offload
from magnetar.metadata.errors import MetadataError
from magnetar.metadata.ops import Op
from magnetar.metadata.port import MetadataStore

if TYPE_CHECKING:
    from magnetar.ledger.tiers.place import TierPlace
    from magnetar.ledger.tiers.tiers import Tiers

_log = logging.getLogger("magnetar.ledger")


class TieringParts(Protocol):
    """What is needed of an engine."""

    metadata: MetadataStore
    has_doomed: bool
    """Whether there may be objects in tiered storage that are to be deleted."""
    grace_ms: int
    """For so long another process may go on writing objects of an attempt that this one gives up."""

    @property
    def clock(self) -> Callable[[], int]: ...

    @property
    def tiers(self) -> Tiers: ...


def doomed_objects(log: str, gone: Sequence[LedgerSummary], not_before_ms: int = 0) -> list[Op]:
    """Return what notes, in the commit that lets go of these ledgers, that their objects are to be deleted.

    Those of attempts that are not complete are not deleted before ``not_before_ms``.
    """
    if all(each.offload is None for each in gone):
        return []
    from magnetar.ledger.tiers.deletions import note_of

    return note_of(log, gone, not_before_ms)


async def delete_doomed(store: MetadataStore, tiers: Callable[[], Tiers], now_ms: int) -> None:
    """Delete what is noted to be deleted by now; raise ``LedgerError``, and then the rest stays noted."""
    from magnetar.ledger.tiers.deletions import delete_noted, has_notes

    if await has_notes(store):
        await delete_noted(store, tiers(), now_ms)


class LogTiering(ABC):
    """That of one log. Its verbs are those of `ManagedLedger`."""

    def __init__(self, shared: TieringParts, name: str, ledger_list: LedgerList) -> None:
        self._shared = shared
        self._name = name
        self._list = ledger_list
        self._tried: dict[int, Offload] = {}
        """By ledger: attempts of this process that failed. The next one writes the same objects again."""

    @abstractmethod
    async def _export(
        self, tiers: Tiers, place: TierPlace, uuid: str, summary: LedgerSummary, attributes: Mapping[str, str]
    ) -> int:
        """Write a ledger's objects and see that they are there; return how many bytes they are. ``LedgerError``."""

    @abstractmethod
    def _goes(self, info: ManagedLedgerInfo, ledger_ids: Sequence[int]) -> None:
        """Note in the list whatever the removal of these ledgers' own copies needs when it is begun anew."""

    @abstractmethod
    def _remove(self, ledger_ids: Sequence[int]) -> None:
        """Remove the engine's own copies of ledgers that lie in tiered storage alone from now on."""

    async def offload(self, ledger_id: int, place: TierPlace) -> None:
        """Do as `ManagedLedger.offload`."""
        summary = self._find(ledger_id)
        if summary.offload is not None and summary.offload.complete:
            return
        tiers, attempt = self._shared.tiers, self._tried.get(ledger_id)
        tiers.store(place)  # what cannot be is told before anything is noted
        if attempt is None or (attempt.driver, attempt.place) != (place.driver, place.words):
            attempt = Offload(str(uuid.uuid4()), place.driver, place.words)
            await self._begin(ledger_id, attempt)
            self._tried[ledger_id] = attempt
        named, attributes = attempt.uuid, await self._attributes()
        tiers.uploading.add(named)
        try:
            tiers.bytes_written += await self._export(tiers, place, named, summary, attributes)
            await self._complete(ledger_id, attempt)
        except LedgerFenced:
            await self._note_again(replace(summary, offload=attempt))
            raise
        finally:
            tiers.uploading.discard(named)
        self._tried.pop(ledger_id, None)
        _log.info("ledger %d of %s is in tiered storage", ledger_id, self._name)

    async def _note_again(self, left: LedgerSummary) -> None:
        """Note what another owner may have deleted before it was written."""
        try:
            await self._shared.metadata.commit(doomed_objects(self._name, [left], self._not_before()))
        except MetadataError as error:
            _log.error("%s: objects of ledger %d may be left: %s", self._name, left.ledger_id, error)

    def _not_before(self) -> int:
        return self._shared.clock() + self._shared.grace_ms if self._shared.grace_ms else 0

    async def _attributes(self) -> dict[str, str]:
        """Return what tells whose objects they are."""
        from magnetar.ledger.tiers.objects import CLUSTER_ATTRIBUTE, CLUSTER_ID, LOG_ATTRIBUTE

        try:
            stored = await self._shared.metadata.get(CLUSTER_ID)
        except MetadataError as error:
            raise metadata_failed(error) from error
        cluster = "" if stored is None else stored.value.decode()
        return {CLUSTER_ATTRIBUTE: cluster, LOG_ATTRIBUTE: self._name}

    def _find(self, ledger_id: int) -> LedgerSummary:
        for each in self._list.info.ledgers:
            if each.ledger_id == ledger_id and each.sealed and not each.compacted and each.entries:
                return each
        raise CannotOffload(f"{self._name}: ledger {ledger_id} is open, empty, compacted or gone")

    async def _begin(self, ledger_id: int, attempt: Offload) -> None:
        notes: list[Op] = []

        def make(info: ManagedLedgerInfo) -> bool:
            summary = changed(info, ledger_id)
            if summary is None:
                raise CannotOffload(f"{self._name}: ledger {ledger_id} is gone")
            notes[:] = doomed_objects(self._name, [summary], self._not_before())
            summary.offload = attempt
            return True

        def counts() -> None:
            self._shared.has_doomed |= bool(notes)

        await self._list.change(make, counts, beside=lambda: notes)

    async def _complete(self, ledger_id: int, attempt: Offload) -> None:
        """Note that it is there; where the ledger went meanwhile, who let go of it has noted what is to be deleted."""

        def make(info: ManagedLedgerInfo) -> bool:
            summary = changed(info, ledger_id)
            if summary is None or summary.offload != attempt:
                return False
            summary.offload = replace(attempt, complete=True, timestamp_ms=self._shared.clock())
            return True

        if not await self._list.change(make):
            self._shared.has_doomed = True
            raise CannotOffload(f"{self._name}: ledger {ledger_id} was let go of meanwhile")

    async def delete_local(self, ledger_ids: Collection[int]) -> None:
        """Do as `ManagedLedger.delete_local`."""
        gone: list[int] = []

        def make(info: ManagedLedgerInfo) -> bool:
            gone.extend(each.ledger_id for each in leaving(info.ledgers, ledger_ids))
            for ledger_id in gone:
                summary = changed(info, ledger_id)
                assert summary is not None
                assert summary.offload is not None
                summary.offload = replace(summary.offload, deleted=True)
            self._goes(info, gone)
            return bool(gone)

        await self._list.change(make, lambda: self._remove(gone))


def leaving(ledgers: Iterable[LedgerSummary], ledger_ids: Collection[int]) -> list[LedgerSummary]:
    """Return those of the ledgers that are in tiered storage, and here as well."""
    return [
        each
        for each in ledgers
        if each.ledger_id in ledger_ids
        and each.offload is not None
        and each.offload.complete
        and not each.offload.deleted
    ]
