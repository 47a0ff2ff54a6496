"""Objects that nothing refers to any more, until they are deleted: noted in the commit that lets go of them.

    /magnetar/offload-deletions/UUID   {"log": NAME, "objects": [[DRIVER, PLACE, UUID, LEDGER], ...], "not_before": MS}

``not_before`` is there where another process may still be writing them: what it wrote behind the deletion would be
known to nobody. So a crash, or a store that is down for a day, leaves nothing behind that nobody knows of. Before
anything is deleted it is looked up once more whether the log refers to it: then it stays.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable
from typing import NamedTuple

from magnetar.ledger.errors import LedgerError, metadata_failed
from magnetar.ledger.formats.info import decode_info, path_of
from magnetar.ledger.tiers.objects import DELETIONS, data_key, index_key
from magnetar.ledger.tiers.place import place_in
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.ledger.values import LedgerSummary
from magnetar.metadata.errors import MetadataError, NotFound
from magnetar.metadata.ops import ANY, Delete, Op, Put
from magnetar.metadata.port import MetadataStore

ROOT = DELETIONS
_log = logging.getLogger("magnetar.ledger")


class Doomed(NamedTuple):
    """The two objects of one attempt to offload a ledger."""

    driver: str
    place: dict[str, str]
    uuid: str
    ledger_id: int


def note_of(log: str, gone: Iterable[LedgerSummary], not_before_ms: int = 0) -> list[Op]:
    """Return what notes that the objects of these ledgers are to be deleted; nothing if they have none.

    ``not_before_ms`` counts where one of them may not be complete.
    """
    gone = list(gone)
    objects = [
        Doomed(each.offload.driver, dict(each.offload.place), each.offload.uuid, each.ledger_id)
        for each in gone
        if each.offload is not None and each.offload.uuid
    ]
    if not objects:
        return []
    told: dict[str, object] = {"log": log, "objects": objects}
    if not_before_ms and any(each.offload is not None and not each.offload.complete for each in gone):
        told["not_before"] = not_before_ms
    value = json.dumps(told, separators=(",", ":")).encode()
    return [Put(f"{ROOT}/{uuid.uuid4()}", value, ANY)]


class Note(NamedTuple):
    """What is noted of objects that were a log's."""

    log: str
    objects: list[Doomed]
    not_before_ms: int


def read_note(value: bytes) -> Note:
    """Return what `note_of` noted."""
    said = json.loads(value)
    return Note(str(said["log"]), [Doomed(*each) for each in said["objects"]], int(said.get("not_before", 0)))


async def delete_noted(store: MetadataStore, tiers: Tiers, now_ms: int) -> int:
    """Delete what is noted and due, but for what its log refers to all the same; return how many objects went.

    What cannot be deleted now stays noted, and is raised (``TierFailed``) when all else is done.
    """
    deleted, failure = 0, None
    try:
        notes = await store.get_tree(ROOT)
        for path, stored in notes.items():
            log, doomed, not_before_ms = read_note(stored.value)
            if now_ms < not_before_ms or any(each.uuid in tiers.uploading for each in doomed):
                continue
            kept = await _referenced(store, log)
            try:
                for each in doomed:
                    if each.uuid in kept:
                        _log.error(
                            "%s still refers to ledger %d in tiered storage: it stays", log, each.ledger_id
                        )
                        continue
                    await tiers.writing(lambda each=each: _delete(tiers, each))  # type: ignore[misc]
                    deleted += 2
            except LedgerError as error:
                failure = error
                continue
            try:
                await store.commit([Delete(path, ANY)])
            except NotFound:
                continue
    except MetadataError as error:
        raise metadata_failed(error) from error
    if failure is not None:
        raise failure
    return deleted


async def _referenced(store: MetadataStore, log: str) -> set[str]:
    stored = await store.get(path_of(log))
    ledgers = decode_info(stored.value, name=log).ledgers if stored is not None else []
    return {each.offload.uuid for each in ledgers if each.offload is not None}


def _delete(tiers: Tiers, each: Doomed) -> None:
    store = tiers.store(place_in(each.driver, each.place))
    # The index goes first: without it nobody takes what is left for a ledger.
    store.delete([index_key(each.uuid, each.ledger_id), data_key(each.uuid, each.ledger_id)])


async def has_notes(store: MetadataStore) -> bool:
    """Return whether anything is noted to be deleted; raise ``LedgerError``."""
    try:
        return bool(await store.children(ROOT))
    except MetadataError as error:
        raise metadata_failed(error) from error
