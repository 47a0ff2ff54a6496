"""Small files become large ones, and what is out of use goes: in the run that appends, or by itself.

Only neighbours are joined, so the offsets of a partition still ascend from file to file and in each file. Rows, offset
ranges and position stay as they are. Files are joined when there are `FEWEST` of about one size or less in a row: each
row is written again a few times in all, not with every commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.engine import Engine
from magnetar.pipeline.tables.files import DataFile, Layout, read_in_order, sorted_by, write_files
from magnetar.pipeline.tables.schema import PLACE
from magnetar.pipeline.tables.table import KEEP_S, Table, TableCommit

FEWEST = 8
_TIER = 8
_TIERS = 4
_SORTED_BYTES = 16 << 20
_KEYED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a run tidies up behind itself."""

    compact: bool = True
    """Whether small files are joined."""
    keep_s: float | None = KEEP_S
    """How long commits and files that are out of use are kept, for readers and time travel; None: for ever."""


@dataclass(frozen=True)
class RewriteFiles:
    """Write the rows of some files into one, or few: what one task does."""

    place: TableDirectory
    schema: pa.Schema
    layout: Layout
    attempt: str
    files: Sequence[DataFile]

    def __call__(self) -> list[DataFile]:
        batches = read_in_order(self.place, self.files, self.schema)
        keys = self._keys()
        if keys:
            layout = replace(self.layout, sorted_by=keys)
            return write_files(self.place, self.schema, layout, self.attempt, self._by_key(batches, keys))
        return write_files(self.place, self.schema, self.layout, self.attempt, self._sorted(batches))

    def _keys(self) -> tuple[str, ...]:
        """Return the columns that the files are sorted by, as their row groups say."""
        with self.place.open(self.files[0].path) as source:
            names = sorted_by(pq.read_metadata(source))
        return names if set(names) <= set(self.schema.names) else ()

    def _by_key(
        self, batches: Iterator[tuple[str, pa.RecordBatch]], keys: tuple[str, ...]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Bring files into one order of keys; what does not fit into memory stays sorted by row group."""
        size = sum(each.size for each in self.files)
        table = (
            pa.Table.from_batches([batch for _, batch in batches], self.schema)
            if size < _KEYED_BYTES
            else None
        )
        if table is None:
            for _, batch in batches:
                yield self.files[0].order, batch.sort_by([(name, "ascending") for name in keys])
            return
        for batch in table.sort_by([(name, "ascending") for name in keys]).to_batches(1 << 15):
            yield self.files[0].order, batch

    def _sorted(self, batches: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Bring files that hold several partitions into one order, if they fit into memory."""
        if not set(PLACE) <= set(self.schema.names) or sum(each.size for each in self.files) > _SORTED_BYTES:
            yield from batches
            return
        table = pa.Table.from_batches([batch for _, batch in batches], self.schema)
        if len(table.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])) > 1:
            place = table.select(list(PLACE)).append_column("row", pa.array(range(len(table)), pa.int64()))
            table = table.take(place.sort_by([(name, "ascending") for name in PLACE])["row"])
        for batch in table.to_batches(max_chunksize=1 << 16):
            yield self.files[0].order, batch


def small_files(
    files: Sequence[DataFile], target_bytes: int, *, fewest: int = FEWEST
) -> list[list[DataFile]]:
    """Return groups of neighbours to join, each of at most about ``target_bytes``."""
    found: list[list[DataFile]] = []
    ours = sorted((each for each in files if each.order and not each.deletes), key=lambda each: each.path)
    for _, of_partition in groupby(ours, _partition):
        found += _groups(list(of_partition), target_bytes, fewest)
    return found


def compact(table: Table, engine: Engine, *, fewest: int = FEWEST) -> int:
    """Join small files and commit that; give how many files went into others."""
    groups = small_files(table.files(), table.layout.target_bytes, fewest=fewest)
    if not groups:
        return 0
    removed = [each for group in groups for each in group]
    with table.attempt() as attempt:
        tasks = [
            RewriteFiles(table.data, table.schema, table.layout, attempt, tuple(group)) for group in groups
        ]
        added = [file for files in engine.run(tasks) for file in files]
        before, after = (sum(each.live_rows for each in some) for some in (removed, added))
        assert before == after, f"{before} rows became {after}"
        table.reached("rewritten")
        table.commit(TableCommit("compact", attempt, add=added, remove=removed))
        table.reached("compacted")
    return len(removed)


def tidy(table: Table, engine: Engine, upkeep: Upkeep) -> tuple[int, int]:
    """Return how many files went into others, and how many were deleted; the caller holds the writer's lock."""
    compacted = compact(table, engine) if upkeep.compact else 0
    expired = table.expire(upkeep.keep_s) if upkeep.keep_s is not None else 0
    table.reached("tidied")
    return compacted, expired


def _groups(files: list[DataFile], target: int, fewest: int) -> list[list[DataFile]]:
    """Return groups of one partition's files, from the smallest tier up; none is in two of them."""
    for tier in range(_TIERS, 0, -1):
        limit = target * 3 // 4 // _TIER ** (tier - 1)
        found = [group for run in _runs(files, limit) for group in _bins(run, target) if len(group) >= fewest]
        if found:
            return found
    return []


def _runs(files: list[DataFile], limit: int) -> Iterator[list[DataFile]]:
    """Yield the neighbours that are all smaller than ``limit``."""
    for small, run in groupby(files, lambda each: each.size < limit):
        if small:
            yield list(run)


def _bins(run: list[DataFile], target: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    size = 0
    for each in run:
        if group and size + each.size > target:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.size
    yield group


def _partition(file: DataFile) -> str:
    return file.order.rsplit("-", 1)[0]
