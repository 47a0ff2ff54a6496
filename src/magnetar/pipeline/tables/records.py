"""A topic's records for tables: how far they can be read, and tasks that write ranges of them to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from magnetar.pipeline.history import Marks, RecordMark, changed, marks_before, said_of_shorter, shorter
from magnetar.pipeline.options import Offsets, TopicPartition, parse_options
from magnetar.pipeline.plan import Plan, ask_of
from magnetar.pipeline.port import RecordQuery, Slice
from magnetar.pipeline.slices import LedgerSlice
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.files import DataFile, Layout, order_of, write_files
from magnetar.records.arrow_fields import FIELDS
from magnetar.records.columns import same_name, same_number

SLICE_BYTES = 16 << 20
_SMALL_BYTES = 8 << 20
_RECORD_BYTES = 200
_OURS = ("slicebytes", "includepositions", "includeheaders", "columns")
"""Options of the source that a table decides by itself."""


class TopicView:
    """One look at one topic (or several): ids, what is visible, and slices of it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name: value for name, value in options.items() if name.lower() not in _OURS}
        parsed = parse_options(
            {**given, "sliceBytes": str(SLICE_BYTES), "includePositions": "true"}, streaming=False
        )
        if parsed.skip_damage:
            raise ValueError("onDamage must be fail here: a table has no place for what could not be read")
        self.ask = ask_of(parsed)
        self._plan = Plan(parsed)
        self.ids: dict[str, str] = dict(self._plan.ids)

    def __enter__(self) -> TopicView:
        return self

    def __exit__(self, *_: object) -> None:
        self._plan.close()

    def starts(self) -> Offsets:
        """Return where a table that has nothing yet begins."""
        return self._plan.starts()

    def ends(self) -> Offsets:
        """Return the offsets behind what may be read now."""
        return self._plan.ends()

    def marks_before(self, ends: Mapping[TopicPartition, int]) -> Marks:
        """Return the marks of the last records before these offsets."""
        return marks_before(self._plan, ends)

    def judge(
        self, position: Mapping[TopicPartition, int], marks: Mapping[TopicPartition, RecordMark]
    ) -> Offsets:
        """Return which partitions end before ``position``, and where.

        Raises ``DataLost``, or warns, for these, and where a topic has another record than a marked one.
        """
        back = shorter(self._plan, position)
        for which, end in back.items():
            self._plan.lost(said_of_shorter(which, position[which], end))
        for what in changed(self._plan, marks).values():
            self._plan.lost(what)
        return back

    def pieces(self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Slice]:
        """Cut what lies between into pieces, in order; raise ``DataLost`` where some of it is gone."""
        return list(self._plan.slices(starts, ends))


@dataclass(frozen=True)
class WriteRecords:
    """Write the records of consecutive slices into files of a table: what one task does."""

    place: TableDirectory
    schema: pa.Schema
    layout: Layout
    attempt: str
    ask: RecordQuery
    pieces: Sequence[Slice]

    def __call__(self) -> list[DataFile]:
        return write_files(self.place, _stored(self.schema), self.layout, self.attempt, self._batches())

    def _batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        asked = [name for name in self.schema.names if name in FIELDS and name not in ("topic", "partition")]
        ask = replace(self.ask, columns=tuple(asked))
        for piece in self.pieces:
            for batch in piece.read(ask):
                if batch.num_rows:
                    order = order_of(
                        piece.topic, piece.partition, batch.column(asked.index("offset"))[0].as_py()
                    )
                    yield order, _with_place(batch, self.schema, piece.topic, piece.partition)


def tasks_of(
    pieces: Sequence[Slice],
    *,
    parallelism: int,
    place: TableDirectory,
    schema: pa.Schema,
    layout: Layout,
    attempt: str,
    ask: RecordQuery,
) -> list[WriteRecords]:
    """Share pieces out to tasks, consecutive ones together, so that files come near their size and cores are busy."""
    sizes = [_bytes_of(piece) for piece in pieces]
    total = sum(sizes)
    wanted = -(-total // layout.target_bytes)
    wanted = 1 if total <= _SMALL_BYTES else -(-wanted // parallelism) * parallelism
    groups: list[list[Slice]] = [[] for _ in range(wanted)]
    done = 0
    for piece, size in zip(pieces, sizes, strict=True):
        groups[min((done + size // 2) * wanted // total, wanted - 1)].append(piece)
        done += size
    return [WriteRecords(place, schema, layout, attempt, ask, tuple(group)) for group in groups if group]


def _bytes_of(piece: Slice) -> int:
    """Return about how much a slice reads; what comes through Fetch is only known by its offsets."""
    if isinstance(piece, LedgerSlice):
        return max(piece.end - piece.start, 1)
    return max(piece.high - piece.low, 1) * _RECORD_BYTES


def _stored(schema: pa.Schema) -> pa.Schema:
    """Return the schema as batches have it on their way: a topic's name once, not once per row."""
    return pa.schema([_NAME if f.name == "topic" else f for f in schema])


_NAME = pa.field("topic", pa.dictionary(pa.int32(), pa.string()))


def _with_place(batch: pa.RecordBatch, schema: pa.Schema, topic: str, partition: int) -> pa.RecordBatch:
    rows = batch.num_rows
    added = {"topic": same_name(topic, rows), "partition": same_number(partition, rows, pa.int32())}
    there = set(batch.schema.names)
    columns = [
        added[f.name]
        if f.name in added
        else batch.column(f.name)
        if f.name in there
        else pa.nulls(rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_stored(schema))
