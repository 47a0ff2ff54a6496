"""Reading where storage cannot be reached: whole record batches from a broker's Fetch, opened by the same batch_table.

Rows are those that the ledgers would give, with one difference: a Fetch does not say where a record is stored, so
``ledger_id``, ``entry_id``, ``batch_index`` and ``publish_time`` are null. Any broker of Kafka's protocol will do.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from magnetar.client.cluster import EARLIEST, LATEST, Cluster
from magnetar.client.errors import ClientError
from magnetar.client.fetch import Fetched, stored
from magnetar.client.settings import ClientSettings, settings_of
from magnetar.pipeline.few_records import in_microseconds
from magnetar.pipeline.options import SourceOptions, TopicPartition
from magnetar.pipeline.port import LastRecord, Reader, RecordQuery, Slice, SliceSize, TopicInfo, Visible
from magnetar.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    batches,
    check_crc,
    decode_records,
    last_record_before,
)
from magnetar.records.errors import RecordsError

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.records.arrow import Table

# What decodes is loaded by the first read: to ask how far topics are takes none of it.

_ARROW_ROWS = 1 << 16
_ARROW_BYTES = 8 << 20
_FETCH_BYTES = 4 << 20
_GUESSED_BYTES = 1024  # of a record, where no broker says how large a partition is
_ABORT = b"\0\0"


class FetchedDamaged(Exception):
    """A broker sent a record batch that cannot be read."""


class FetchReader(Reader):
    """One look at a cluster, through its brokers."""

    def __init__(self, options: SourceOptions) -> None:
        self._settings = settings_of(options.kafka)
        self._committed = options.read_committed
        self._cluster = Cluster(self._settings)
        self._bytes_each: dict[TopicPartition, float] = {}

    def topics(self) -> Mapping[str, TopicInfo]:
        """Return every topic but Kafka's own internal ones."""
        found = self._cluster.retrying(self._cluster.topics)
        return {
            name: TopicInfo(len(topic.leaders), _printed(topic.topic_id))
            for name, topic in found.items()
            if not topic.internal
        }

    def visible(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, Visible]:
        def ask(place: int) -> dict[tuple[str, int], int]:
            asked = {(each.topic, each.partition): place for each in wanted}
            return self._cluster.retrying(
                lambda: self._cluster.list_offsets(asked, committed=self._committed)
            )

        firsts, nexts = ask(EARLIEST), ask(LATEST)
        return {each: Visible(firsts[each], nexts[each]) for each in wanted}

    def offset_at_time(self, which: TopicPartition, timestamp_ms: int) -> int | None:
        found = self._cluster.retrying(lambda: self._cluster.list_offsets({which: max(timestamp_ms, 0)}))
        return None if found[which] < 0 else found[which]

    def slices(
        self, which: TopicPartition, low: int, high: int, size: SliceSize, ask: RecordQuery
    ) -> list[Slice]:
        if ask.ledgers is not None:
            raise ValueError("option 'ledgers' needs a path: brokers do not tell which ledger has a record")
        if ask.skip_damage:
            raise ValueError(
                "onDamage=skip needs a path: brokers do not tell where damage ends. Allowed here: fail"
            )
        if ask.times_ms is not None:
            first = self.offset_at_time(which, ask.times_ms[0])
            low = high if first is None else max(low, first)
        step = max(int(size.about_bytes / self._bytes_of_each(which)), 1)
        if size.max_offsets is not None:
            step = min(step, size.max_offsets)
        topic_id = self._cluster.retrying(lambda: self._cluster.topic(which.topic)).topic_id
        return [
            FetchSlice(*which, start, min(start + step, high), self._settings, topic_id)
            for start in range(low, high, step)
        ]

    def last_record(
        self, which: TopicPartition, low: int, high: int, *, committed: bool
    ) -> LastRecord | None:
        """Return it by the connections that there are, and without the batch_table."""
        topic_id = self._cluster.retrying(lambda: self._cluster.topic(which.topic)).topic_id
        ask = RecordQuery((), read_committed=committed)
        return FetchSlice(*which, low, high, self._settings, topic_id).last_record(self._cluster, ask)

    def close(self) -> None:
        self._cluster.close()

    def _bytes_of_each(self, which: TopicPartition) -> float:
        """Return about how many bytes an offset stands for."""
        if which not in self._bytes_each:
            try:
                size = self._cluster.retrying(lambda: self._cluster.sizes([which]), timeout_s=5).get(which, 0)
            except ClientError:
                size = 0
            (visible,) = self.visible([which]).values()
            count = visible.next - visible.first
            self._bytes_each[which] = size / count if size and count > 0 else _GUESSED_BYTES
        return self._bytes_each[which]


@dataclass(frozen=True)
class FetchSlice(Slice):
    """The records of ``[low, high)``, from the partition's leader."""

    settings: ClientSettings
    topic_id: bytes

    def read(self, ask: RecordQuery) -> Iterator[pa.RecordBatch]:
        with Cluster(self.settings) as cluster:
            found = cluster.retrying(lambda: cluster.topic(self.topic))
            if found.topic_id != self.topic_id:
                raise ClientError(f"topic {self.topic!r} was deleted and made anew while it was being read")
            yield from self.read_through(cluster, ask)

    def read_through(self, cluster: Cluster, ask: RecordQuery) -> Iterator[pa.RecordBatch]:
        """Return the records, brought by connections that the caller has."""
        for some in _gathered(self._stored(cluster, ask), self, ask):
            yield from some.arrow(self, ask)

    def last_record(self, cluster: Cluster, ask: RecordQuery) -> LastRecord | None:
        """Return the last record, brought by connections that the caller has."""
        found = None
        for fetched in self._stored(cluster, ask):
            for header, data in _uncontrolled(fetched, self, ask):
                if _wanted(header, self, ask):
                    try:
                        record = last_record_before(data, self.high)
                    except RecordsError as error:
                        raise _damaged(self, header, error) from None
                    found = record if record is not None and record.offset >= self.low else found
        if found is None:
            return None
        return LastRecord(found.offset, in_microseconds(found.timestamp), found.key, found.value)

    def _stored(self, cluster: Cluster, ask: RecordQuery) -> Iterator[Fetched]:
        return stored(
            cluster, self.topic, self.partition, self.low, self.high,
            committed=ask.read_committed, most_bytes=_FETCH_BYTES,
        )  # fmt: skip


class _Gathered:
    """Wanted batches of some Fetches, laid end to end, with the table that the kernel reads."""

    def __init__(self) -> None:
        self._parts: list[memoryview] = []
        self._rows: list[BatchHeader] = []
        self.size = self.records = 0

    def add(self, header: BatchHeader, data: memoryview) -> None:
        self._rows.append(header)
        self._parts.append(data)
        self.size += len(data)
        self.records += header.records_count

    def arrow(self, piece: FetchSlice, ask: RecordQuery) -> Iterator[pa.RecordBatch]:
        """Yield the records; raise `FetchedDamaged`."""
        if not self._rows:
            return
        from magnetar.records.arrow import BatchUnreadable, arrow_batches

        data = np.frombuffer(b"".join(self._parts), np.uint8)
        try:
            yield from arrow_batches(
                data, self._table(), topic=piece.topic, partition=piece.partition, low=piece.low, high=piece.high,
                columns=ask.columns, times_ms=ask.times_ms,
            )  # fmt: skip
        except BatchUnreadable as error:
            raise _damaged(piece, self._rows[error.batch], error) from None

    def _table(self) -> Table:
        from magnetar.records import batch_table

        table = np.zeros((len(self._rows), batch_table.BATCH_FIELDS), np.int64)
        at = 0
        for row, header in zip(table, self._rows, strict=True):
            row[batch_table.START], row[batch_table.END] = at + HEADER_BYTES, at + header.size
            row[batch_table.BASE_OFFSET], row[batch_table.LAST_DELTA] = (
                header.base_offset,
                header.last_offset_delta,
            )
            row[batch_table.BASE_TIME], row[batch_table.MAX_TIME] = (
                header.base_timestamp,
                header.max_timestamp,
            )
            row[batch_table.ATTRIBUTES], row[batch_table.COUNT] = header.attributes, header.records_count
            at += header.size
        return table


def _gathered(answers: Iterator[Fetched], piece: FetchSlice, ask: RecordQuery) -> Iterator[_Gathered]:
    """Yield the wanted batches, as many at a time as make a good Arrow batch. Checks every checksum."""
    some = _Gathered()
    for fetched in answers:
        for header, data in _uncontrolled(fetched, piece, ask):
            if _wanted(header, piece, ask):
                some.add(header, data)
            if some.size >= _ARROW_BYTES or some.records >= _ARROW_ROWS:
                yield some
                some = _Gathered()
    yield some


def _uncontrolled(
    fetched: Fetched, piece: FetchSlice, ask: RecordQuery
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Leave out the coordinators' marks, and what aborted transactions wrote if only committed records are wanted."""
    aborted = sorted(fetched.aborted, key=lambda each: each.first_offset, reverse=True)
    open_ones: set[int] = set()
    for header, data in batches(fetched.records):
        try:
            check_crc(data, header)
        except RecordsError as error:
            raise _damaged(piece, header, error) from None
        while aborted and aborted[-1].first_offset <= header.last_offset:
            open_ones.add(aborted.pop().producer_id)
        if header.is_control:
            if _is_abort(data):
                open_ones.discard(header.producer_id)
        elif not (ask.read_committed and header.is_transactional and header.producer_id in open_ones):
            yield header, data


def _is_abort(data: memoryview) -> bool:
    """Return whether a mark aborts: its one record's key is two 16-bit numbers, a version and the kind, 0 for abort."""
    (record,) = decode_records(data)
    return record.key is not None and record.key[2:4] == _ABORT


def _wanted(header: BatchHeader, piece: FetchSlice, ask: RecordQuery) -> bool:
    if header.last_offset < piece.low or header.base_offset >= piece.high:
        return False
    if ask.times_ms is None:
        return True
    low, high = ask.times_ms
    return header.max_timestamp >= low and (
        header.max_timestamp <= high or not header.attributes & LOG_APPEND_TIME
    )


def _damaged(piece: FetchSlice, header: BatchHeader, why: Exception) -> FetchedDamaged:
    return FetchedDamaged(
        f"the batch at offset {header.base_offset} of {piece.topic}-{piece.partition}, as fetched, is damaged: {why}"
    )


def _printed(topic_id: bytes) -> str:
    """Return a topic's id as Kafka's clients print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
