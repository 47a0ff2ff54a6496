"""Ledger files that replace others, all or none: those that a migration rewrote under the same ledger ids.

    packed-offsets/new/      the files as they shall be, written and flushed before anything else happens
    packed-offsets/old/      the files as they were
    packed-offsets/mapping/  per managed ledger: what each entry's packed offset has become (Parquet)

The metadata changes in one transaction, which also notes under `SWAP` which ledgers are to be swapped: that is the
moment at which the new state counts. The files are renamed after it, and the next opening of the directory continues
where a crash ended this. Nothing reads a ledger before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from magnetar.ledger.formats.layout import index_path, ledger_path
from magnetar.metadata.blocking import BlockingStore

SWAP = "/magnetar/ledger-swap"
FOLDER = "packed-offsets"


def draft_path(root: Path, ledger_id: int) -> Path:
    """Return where a ledger's new file waits."""
    return root / FOLDER / "new" / ledger_path(root, ledger_id).name


def kept_path(root: Path, ledger_id: int) -> Path:
    """Return the path of a ledger's old file."""
    return root / FOLDER / "old" / ledger_path(root, ledger_id).name


def note_swap(metadata: BlockingStore, *, aside: Iterable[int], in_place: Iterable[int]) -> None:
    """Note which ledgers' files go and which drafts replace one, in the transaction that makes that count."""
    metadata.put(SWAP, json.dumps({"aside": sorted(aside), "in_place": sorted(in_place)}).encode())


def finish_swap(root: Path, metadata: BlockingStore) -> bool:
    """Finish the renames of a noted swap; return whether one was noted. A crash in it does no harm.

    Works on the operating system's files, not on a ``Disk``: only a migration of a directory notes a swap.
    """
    noted = metadata.get(SWAP)
    if noted is None:
        return False
    (root / FOLDER / "old").mkdir(parents=True, exist_ok=True)
    named = json.loads(noted.value)
    for ledger_id in named["aside"]:
        _put_aside(root, ledger_id)
    flush_folders(root / FOLDER / "old")
    for ledger_id in named["in_place"]:
        _put_in_place(root, ledger_id)
    folders = {ledger_path(root, each).parent for each in (*named["aside"], *named["in_place"])}
    flush_folders(*folders, root / "ledgers", root / FOLDER / "new")
    metadata.delete(SWAP)
    return True


def flush_folders(*folders: Path) -> None:
    """Make the names in folders durable."""
    for folder in folders:
        if folder.is_dir():
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _put_aside(root: Path, ledger_id: int) -> None:
    place, kept = ledger_path(root, ledger_id), kept_path(root, ledger_id)
    if kept.exists() or not place.exists():
        return  # done before the crash: what stands there now is new
    index = index_path(root, ledger_id)
    if index.exists():
        os.replace(index, kept.with_suffix(".index"))
    os.replace(place, kept)


def _put_in_place(root: Path, ledger_id: int) -> None:
    draft, place = draft_path(root, ledger_id), ledger_path(root, ledger_id)
    if not draft.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if draft.with_suffix(".index").exists():  # otherwise a crash came between the two
        os.replace(draft.with_suffix(".index"), index_path(root, ledger_id))
    os.replace(draft, place)
