"""Is what lies in tiered storage what was written, and does a log refer to all that is there?

Keys for S3 are looked for in the environment, as everywhere outside of a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.walk import walk
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.formats.layout import HEADER_BYTES
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.tiers.deletions import Doomed, read_note
from magnetar.ledger.tiers.objects import CLUSTER_ATTRIBUTE, ObjectStore, StoredObject, parse_key
from magnetar.ledger.tiers.offloaded import OffloadedObjects
from magnetar.ledger.tiers.place import TierPlace, place_in, place_of
from magnetar.ledger.tiers.tiers import TierSettings, open_store

_BLOCKS_AT_ONCE = 8
_NO_END = 1 << 62


class Stranger(NamedTuple):
    """An object of this cluster's that nothing refers to."""

    store: ObjectStore
    found: StoredObject

    @property
    def name(self) -> str:
        """Where it lies, for people."""
        return f"{self.store.where}/{self.found.key}"


class Tiering:
    """The places that a directory's ledgers lie in. ``notes`` are those of what is to be deleted, as stored."""

    def __init__(
        self, logs: Mapping[str, ManagedLedgerInfo], notes: Iterable[bytes] = (), cluster: str = ""
    ) -> None:
        self._cluster = cluster
        self._stores: dict[TierPlace, ObjectStore] = {}
        self._uuids: set[str] = set()
        self._places: set[TierPlace] = set()
        doomed = (each for note in notes for each in read_note(note).objects)
        for each in (*_attempts(logs), *doomed):
            self._uuids.add(each.uuid)
            self._places.add(place_in(each.driver, each.place))

    def check(self, summary: LedgerSummary) -> tuple[int, int]:
        """Read every entry of a ledger that is there; return how many there are, and their bytes with their frames.

        Raises ``LedgerCorrupt`` at the first that is not what was written, and ``TierFailed`` if it cannot be told.
        """
        assert summary.offload is not None
        try:
            objects = OffloadedObjects(self._store(place_of(summary.offload)), summary.offload.uuid, summary)
            due, path = 0, Path(objects.where)
            for at, data in _stretches(objects):
                view = memoryview(data)
                while view:  # a walk brings some thousands
                    walked = walk(
                        view,
                        at,
                        summary.ledger_id,
                        due,
                        offset=-1,
                        max_bytes=_NO_END,
                        up_to=_NO_END,
                        path=path,
                    )
                    view, at, due = view[walked.at - at :], walked.at, walked.entry_id
        except LedgerNotFound as error:
            raise LedgerCorrupt(
                f"ledger {summary.ledger_id} is not where the metadata says: {error}"
            ) from error
        if due != summary.entries:
            raise LedgerCorrupt(f"{objects.where}: holds {due} entries, and {summary.entries} are due")
        return due, summary.size

    def strangers(self) -> Iterator[Stranger]:
        """Yield what lies in those places, is this cluster's, and is of no attempt that anything refers to.

        Raises ``TierFailed``. What others wrote there is theirs.
        """
        for place in sorted(self._places, key=str):
            store = self._store(place)
            for found in store.listed():
                named = parse_key(found.key)
                if named is None or named[0] in self._uuids:
                    continue
                if self._cluster and store.attributes(found.key).get(CLUSTER_ATTRIBUTE) == self._cluster:
                    yield Stranger(store, found)

    def delete_strangers(self) -> list[Stranger]:
        """Delete them; return which they were. Raises ``TierFailed``."""
        gone = list(self.strangers())
        for each in gone:
            each.store.delete([each.found.key])
        return gone

    def _store(self, place: TierPlace) -> ObjectStore:
        if place not in self._stores:
            self._stores[place] = open_store(place, TierSettings())
        return self._stores[place]


def _attempts(logs: Mapping[str, ManagedLedgerInfo]) -> Iterator[Doomed]:
    for info in logs.values():
        for each in info.ledgers:
            if each.offload is not None and each.offload.uuid:
                offload = each.offload
                yield Doomed(offload.driver, dict(offload.place), offload.uuid, each.ledger_id)


def _stretches(objects: OffloadedObjects) -> Iterator[tuple[int, bytes]]:
    """Yield what the ledger's own file held, in pieces of whole entries, each with its place there."""
    blocks = objects.found.blocks
    for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
        last = min(first + _BLOCKS_AT_ONCE, len(blocks)) - 1
        yield blocks[first].own_start, b"".join(objects.frames(first, last))
    assert not blocks or blocks[0].own_start == HEADER_BYTES
