"""The ledgers of one partition from before the index, rewritten under their ids, entry by entry, into drafts.

Ledger and entry ids stay, and with them Pulsar's message ids and cursors. Only ledgers without entries are let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.admin.errors import AdminError
from magnetar.doctor.ledgers import mapped
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.recovery import describe
from magnetar.ledger.files.swap import FOLDER, draft_path
from magnetar.ledger.formats.layout import (
    FRAME_BYTES,
    HEADER_BYTES,
    LedgerFrame,
    encode_header,
    frame_head,
    is_header,
    ledger_path,
    read_frame,
)
from magnetar.ledger.formats.packed import PackedLog, pack
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary
from magnetar.migrate.migrate_entries import has_index, indexed, open_old
from magnetar.records.errors import RecordsError

_WRITE_BYTES = 4 << 20
_RESTORE = "Restore the file from a copy; nothing was changed."
_SCHEMA = pa.schema(
    [("ledger", pa.int64()), ("entry", pa.int64()), ("packed", pa.int64()), ("offset", pa.int64()),
     ("messages", pa.int64())]
)  # fmt: skip


class RewriteSink(Protocol):
    """What takes the rewritten entries of one ledger."""

    def add(self, data: bytes, messages: int, timestamp_ms: int) -> None: ...


class LedgerDraft:
    """A ledger that is written beside the others, and is whole and on disk after ``end``."""

    def __init__(self, root: Path, ledger_id: int, first_offset: int, created_ms: int) -> None:
        self._summary = LedgerSummary(ledger_id, first_offset, created_ms=created_ms)
        self._index = SparseIndex(ledger_id, first_offset)
        self._path = draft_path(root, ledger_id)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("wb", buffering=_WRITE_BYTES)
        self._file.write(encode_header(ledger_id, created_ms))

    def add(self, data: bytes, messages: int, timestamp_ms: int) -> None:
        """Write the next entry."""
        index = self._index
        self._file.write(frame_head(index.ledger_id, index.entries, data, [], len(data)))
        index.add(FRAME_BYTES + len(data), messages, timestamp_ms)

    def end(self) -> LedgerSummary:
        """Flush ledger and index; give what the metadata keeps of it."""
        self._file.close()
        disk = RealDisk()
        disk.sync([self._path])
        disk.replace({self._path.with_suffix(".index"): self._index.encode()})
        describe(self._summary, self._index)
        return self._summary

    def abandon(self) -> None:
        """Close the file; the drafts' folder is emptied by who owns it."""
        self._file.close()


def is_packed(root: Path, summary: LedgerSummary) -> bool | None:
    """Tell whether a ledger's entries have no index; None if it has no entries.

    Where the first entry cannot be read, the metadata tells: it knows the first offset of a ledger with an index.
    """
    path = ledger_path(root, summary.ledger_id)
    is_old = summary.first_offset < 0
    if not path.exists():
        return True if is_old and summary.entries else None
    with mapped(path) as data:
        frame = read_frame(data, HEADER_BYTES, summary.ledger_id, 0)
        if frame is not None:
            return not has_index(frame.entry)
        return True if is_old and (len(data) > HEADER_BYTES or summary.entries) else None


def frames_of(root: Path, summary: LedgerSummary, *, may_be_torn: bool) -> Iterator[LedgerFrame]:
    """Yield the whole frames of a ledger, checked; raise `AdminError` at a damaged one, with its position.

    ``may_be_torn`` passes over the end of an open ledger that a crash left behind.
    """
    path = ledger_path(root, summary.ledger_id)
    if not path.exists() and not summary.entries:
        return
    try:
        with mapped(path) as data:
            if not is_header(bytes(data[:HEADER_BYTES]), summary.ledger_id):
                raise AdminError(f"{path}: the header (bytes 0-31) is damaged", _RESTORE)
            at, entry_id = HEADER_BYTES, 0
            while (frame := read_frame(data, at, summary.ledger_id, entry_id)) is not None:
                yield frame
                at += FRAME_BYTES + len(frame.entry)
                entry_id += 1
            torn = at < len(data) and not (may_be_torn and not summary.sealed)
            if torn or entry_id < summary.entries:
                raise AdminError(f"{path}: entry {entry_id} at byte {at} is damaged", _RESTORE)
    except FileNotFoundError:
        raise AdminError(f"{path}: the file of a ledger with entries is gone", _RESTORE) from None


def rewrite(
    root: Path,
    summary: LedgerSummary,
    log: PackedLog,
    sink: RewriteSink | None,
    passed: Callable[[int], object],
) -> tuple[int, int]:
    """Hand every entry with its index to ``sink``, and note it in ``log``; give how many were Kafka's and Pulsar's.

    ``passed`` is told the bytes of each. Raises `AdminError` for an entry that is damaged.
    """
    counts = [0, 0]
    log.begin(summary.ledger_id)
    for frame in frames_of(root, summary, may_be_torn=False):
        with _placed(ledger_path(root, summary.ledger_id), frame):
            old = open_old(frame.entry)
            new = indexed(old, log.next_offset)
        log.add(summary.ledger_id, old.messages)
        counts[not old.is_kafka] += 1
        if sink is not None:
            sink.add(new.data, old.messages, new.timestamp_ms)
        passed(FRAME_BYTES + len(frame.entry))
    return counts[0], counts[1]


@contextmanager
def _placed(path: Path, frame: LedgerFrame) -> Iterator[None]:
    try:
        yield
    except RecordsError as error:
        raise AdminError(
            f"{path}: entry {frame.entry_id} at byte {frame.at} cannot be migrated: {error}",
            "Nothing was changed. Restore the file from a copy if it is damaged.",
        ) from error


def mapping_path(root: Path, name: str) -> Path:
    """Return where the mapping of a managed ledger lies."""
    return root / FOLDER / "mapping" / f"{quote(name, safe='')}.parquet"


def write_mapping(root: Path, name: str, ledger_ids: Sequence[int], log: PackedLog) -> None:
    """Keep what each entry's packed offset has become, one row per entry."""
    path = mapping_path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    with pq.ParquetWriter(draft, _SCHEMA, compression="zstd") as writer:
        for ledger_id in ledger_ids:
            starts = np.asarray(log.starts(ledger_id), dtype=np.int64)
            entries = np.arange(len(starts) - 1, dtype=np.int64)
            columns = (
                np.full(len(entries), ledger_id, dtype=np.int64), entries,
                (entries << 12) + pack(ledger_id, 0), starts[:-1], np.diff(starts),
            )  # fmt: skip
            writer.write_table(pa.table([pa.array(each) for each in columns], schema=_SCHEMA))
    RealDisk().sync([draft])
    draft.replace(path)
