"""The port: what the source needs of the place where records are. Ledgers in storage fill it, and a broker's Fetch.

The driver asks a `Reader` which topics there are, how far each partition may be read, and what the tasks shall read.
Each `Slice` travels to an executor and gives its records there as Arrow batches; rows are the same whoever brings them.
A `Reader` is one look: it is opened for a question or a few, and closed behind them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magnetar.pipeline.options import SLICE_BYTES, TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa


class TopicInfo(NamedTuple):
    """How many partitions a topic has, and its id (as Kafka's clients print it): a topic made anew has another one."""

    partitions: int
    topic_id: str


class Visible(NamedTuple):
    """The offsets that may be read: ``[first, next)``. Under read_committed ``next`` is the last stable offset."""

    first: int
    next: int


class LastRecord(NamedTuple):
    """What marks a place in a partition's history: a record without its headers. ``time_us`` is since 1970."""

    offset: int
    time_us: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """What a read wants of every record; the same for all slices.

    ``columns`` are names of `magnetar.records.arrow.FIELDS`, and batches have exactly these, in this order.
    ``times_ms`` lets through only records with ``low <= timestamp <= high``. ``read_committed`` leaves out what
    aborted transactions wrote. ``skip_damage`` gives one row (`magnetar.records.arrow.damage_row`) for each damaged
    range instead of an error. ``ledgers`` are the only ones to read; a `Reader` that knows of none raises
    ``ValueError``.
    """

    columns: tuple[str, ...]
    times_ms: tuple[int, int] | None = None
    read_committed: bool = False
    skip_damage: bool = False
    ledgers: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class SliceSize:
    """How large a slice may be: about so many bytes, and at most so many offsets (None: any number)."""

    about_bytes: int = SLICE_BYTES
    max_offsets: int | None = None


@dataclass(frozen=True)
class Slice(ABC):
    """The records of one partition with offsets in ``[low, high)``: all that a task needs, and small when pickled."""

    topic: str
    partition: int
    low: int
    high: int

    @abstractmethod
    def read(self, ask: RecordQuery) -> Iterator[pa.RecordBatch]:
        """Return the records in the order of their offsets, on an executor.

        Batches of 50,000 rows or more are best, and of at most some 64 MB, unless one record is larger. Offsets
        that are not there are no error; damage raises an error that names its place.
        """


class Reader(ABC):
    """One look at the records of a cluster or a data directory, taken by the driver."""

    @abstractmethod
    def topics(self) -> Mapping[str, TopicInfo]:
        """Return every topic by the name Kafka's clients use."""

    @abstractmethod
    def visible(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, Visible]:
        """Return how far each of these partitions, which all exist, may be read now."""

    @abstractmethod
    def offset_at_time(self, which: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of ``timestamp_ms`` or later, or None if there is none."""

    @abstractmethod
    def slices(
        self, which: TopicPartition, low: int, high: int, size: SliceSize, ask: RecordQuery
    ) -> list[Slice]:
        """Cut ``[low, high)``, all of it visible, into slices; leave out those in which nothing can fit ``ask``."""

    def last_record(
        self, which: TopicPartition, low: int, high: int, *, committed: bool
    ) -> LastRecord | None:
        """Return the last record of ``[low, high)``, all of it visible and little; None where there is none.

        ``committed`` leaves out what aborted transactions wrote.
        """
        ask = RecordQuery(("offset", "timestamp", "key", "value"), read_committed=committed)
        last = None
        for piece in self.slices(which, low, high, SliceSize(), ask):
            for batch in piece.read(ask):
                last = batch if batch.num_rows else last
        return None if last is None else last_of(last)

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def last_of(rows: pa.RecordBatch) -> LastRecord:
    """Return a batch's last row; it has the columns offset, timestamp, key and value."""
    import pyarrow as pa

    last = rows.slice(rows.num_rows - 1)
    time = last.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())[0].as_py()
    offset, key, value = (last.column(name)[0].as_py() for name in ("offset", "key", "value"))
    return LastRecord(offset, time, key, value)
