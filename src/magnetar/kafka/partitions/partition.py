"""One partition: batches in, entries out, and a wake-up when there is more to read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from magnetar.base.some_lines import SomeLines
from magnetar.figures.figures import LogFigures
from magnetar.kafka.apart import load_apart
from magnetar.kafka.partitions.chunked import ChunkedMessages
from magnetar.kafka.partitions.conversions import BatchConversions, FrameOf, as_stored
from magnetar.kafka.partitions.failed_reads import EXPECTED, ReadFailure, read_failed
from magnetar.kafka.partitions.formats import (
    KAFKA,
    MIXED_KAFKA,
    PULSAR,
    Batch,
    CheckedBatch,
    checked,
    pulsar_framed,
)
from magnetar.kafka.partitions.read_ahead import MIN_BYTES, ReadAhead
from magnetar.ledger.errors import LedgerError, StorageFull
from magnetar.ledger.port import ManagedLedger, TakenBack
from magnetar.ledger.transactions import NOT_OPENED
from magnetar.logs import producer_log
from magnetar.logs.leader_epochs import NEVER_MOVED, LeaderEpochs
from magnetar.logs.open_logs import Reason
from magnetar.logs.producer_snapshot import Kept
from magnetar.logs.producers import (
    BatchTooEarly,
    EndTransactionMarker,
    OutOfOrderSequence,
    ProducerStates,
)
from magnetar.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    MAX_GAP,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    UNKNOWN_TIME,
    BatchHeader,
    each_record,
    gap,
    read_header,
    recompressed,
    with_log_append_time,
)
from magnetar.records.check import TakesLong
from magnetar.records.compression import Buffer, Codec
from magnetar.records.control import marker_batch, read_marker
from magnetar.records.entry import kafka_message_head
from magnetar.records.errors import InvalidRecord, RecordsError
from magnetar.records.pulsar_metadata import MAX_MESSAGES
from magnetar.records.tuples import maker
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.records.check_kept import KeptBatch

_log = logging.getLogger("magnetar.kafka")
_out_of_order = SomeLines(_log)
_NOBODY: set[Callable[[], None]] = set()
"""Who waits where nobody does: an empty set each would be a twentieth of what a partition takes."""
_T = TypeVar("_T")
# A batch up to where its own CRC begins to count. The broker fills in the base offset and the leader epoch.
_UNCOUNTED = struct.Struct(">qiibI")
_BEFORE_LENGTH = 12  # the length of a batch counts from behind itself
_NO_BOUND_MS = (1 << 63) - 1
_FEW_RECORDS = 1000  # so many are looked at one by one without leaving the event loop
_MAX_NAMED = 10_000
_SETTLES_S = 30.0
"""Producers send again within seconds what was refused; who has not by then has lost it."""
_HEADS_BYTES = 1 << 10  # what some entries have before their batches, which alone count for a client


class BatchTooLarge(RecordsError):
    """A batch is larger than its topic's ``max.message.bytes``."""


class TopicMigrating(RecordsError):
    """Another cluster leads the topic still: who would write it here has to wait."""


class NotInPlace(RecordsError):
    """A batch of another cluster's begins at an offset that is taken here."""


class RecordsRejected(InvalidRecord):
    """Some records of a batch may not be stored, so none is (KIP-467).

    ``records`` are the numbers of the first `_MAX_NAMED` of them, and why: a small batch may hold millions.
    """

    def __init__(self, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.records = records


class KeylessRecords(RecordsRejected):
    """Records without a key for a compacted topic."""

    def __init__(self, place: str, numbers: list[int]) -> None:
        why = f"Compacted topic cannot accept message without key in topic partition {place}"
        first = ", ".join(f"RecordError(batchIndex={number}, message='{why}')" for number in numbers[:3])
        message = (
            f"One or more records have been rejected due to {len(numbers)} record errors in total, "
            f"and only showing the first three errors at most: [{first}]"
        )
        super().__init__(message, [(number, why) for number in numbers[:_MAX_NAMED]])


class InvalidTimestamp(RecordsRejected):
    """Timestamps that lie too far from the broker's clock for their topic, or that only a broker may set."""

    def __init__(self, records: list[tuple[int, str]]) -> None:
        super().__init__("One or more records have been rejected due to invalid timestamp", records)


class PlacedBatch(NamedTuple):
    """Where a batch has its place, and what tells that it may be acknowledged: None if that is so at once."""

    base_offset: int
    log_append_time_ms: int
    done: asyncio.Future[None] | None


class PreparedBatch(NamedTuple):
    """A producer's batch, checked: as it will be stored or, for format ``pulsar``, with ``framed`` to be stored.

    ``earliest_ms`` is the earliest timestamp of its records as they were sent.
    """

    data: memoryview
    header: BatchHeader
    entry_format: str = KAFKA
    framed: Buffer | None = None
    earliest_ms: int = UNKNOWN_TIME


_placed_batch = maker(PlacedBatch)
_prepared_batch = maker(PreparedBatch)


class AppendRefusal(NamedTuple):
    """What storage said to the last producer."""

    at_ms: int
    error: BaseException


class Partition:
    """A managed ledger with what Kafka adds to it. Made by ``Partitions``; everything runs on the event loop."""

    __slots__ = (
        "_ahead",
        "_appended_ms",
        "_chunked",
        "_clock",
        "_conversions",
        "_frame_of",
        "_known",
        "_last_done",
        "_on_closed",
        "_refusal",
        "_settles_until_s",
        "_waiting",
        "closed",
        "epochs",
        "figures",
        "index",
        "leader_epoch",
        "log",
        "producers",
        "topic",
        "touched",
        "unread",
    )

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: ManagedLedger,
        clock: Callable[[], int],
        ahead: ReadAhead | None = None,
        conversions: BatchConversions | None = None,
        frame_of: FrameOf | None = None,
        epochs: LeaderEpochs = NEVER_MOVED,
        producers: ProducerStates | None = None,
        figures: LogFigures | None = None,
        on_closed: Callable[[Partition], None] | None = None,
    ) -> None:
        """``producers`` are those of the log, if they have been loaded already.

        ``on_closed`` is called when its log has closed, before waiting clients learn it.
        """
        self.topic = topic
        self._known = producers
        self.figures = figures or LogFigures()
        """What comes in and goes out is counted there."""
        self.epochs = epochs
        self.leader_epoch = self.epochs.latest
        """Since when, in the count of its owners, this broker leads it."""
        self._ahead = ahead
        self.index = index
        self.log = log
        self.producers = ProducerStates()
        self._clock = clock
        self._conversions = conversions or BatchConversions()
        self._frame_of = frame_of
        self._chunked: ChunkedMessages | None = None
        self._waiting = _NOBODY
        self._last_done: asyncio.Future[None] | None = None
        self._appended_ms = 0
        self._refusal: AppendRefusal | None = None
        self._settles_until_s = 0.0
        self.unread: ReadFailure | None = None
        """The last read that storage failed, until what was asked for is read."""
        self.closed: Reason | None = None
        """Why its log has closed; whoever holds the partition looks for it again."""
        self._on_closed = on_closed
        self.touched = True
        """Whether somebody asked for it lately; see ``Partitions.let_go``."""
        log.on_moved = self._ring
        log.on_taken_back.append(self._taken_back)

    async def load(self) -> None:
        """Bring the producers' states up to the log's end: from the snapshot, then from the batches after it."""
        if self._known is None:
            self.producers = await producer_log.load(self.log)
            self.log.take_snapshot = (
                self.producers_snapshot
            )  # not before: it must not keep half of the states
        else:
            self.producers, self._known = self._known, None
        self.producers.has_moved = self.leader_epoch > 0
        if self.log.log_end_offset:  # its owner of before may have refused a batch before those that come now
            self.settles()

    def settles(self) -> None:
        """A batch may have been refused that is due: those behind it, already on their way, are to come again, too.

        OUT_OF_ORDER_SEQUENCE_NUMBER would tell their producer that records are lost (KIP-98). librdkafka begins a new
        epoch for that, in all partitions, and sends once more what it has not heard of and may be stored.
        """
        self._settles_until_s = time.monotonic() + _SETTLES_S

    def log_closed(self, reason: Reason) -> None:
        """Have whoever waits here learn that the log has closed, and why."""
        self.closed = reason
        if self._on_closed is not None:
            self._on_closed(self)
        # What storage takes back is heard of until the end, or it would be kept in the producers' states.
        self.log.on_moved = None
        self._ring()

    @property
    def is_idle(self) -> bool:
        """Whether it may be closed and opened again without anybody's noticing: nobody waits, and all is durable.

        A compacted topic is looked through by the cleaner; a coordinator keeps what it needs of its own.
        """
        log, topic = self.log, self.topic
        return not (
            self._waiting
            or log.watchers
            or topic.internal
            or topic.config.compacted
            or log.high_watermark != log.log_end_offset
        )

    def producers_snapshot(self) -> bytes:
        """Return the bytes that the log keeps beside its checkpoints."""
        return self.producers.encode()

    # -- writing -----------------------------------------------------------------------------------------------

    @property
    def entry_format(self) -> str:
        """What producers' batches are stored as from now on; the coordinators' own topics keep to ``kafka``."""
        return KAFKA if self.topic.internal else self.topic.config.entry_format

    def check(self, data: memoryview) -> PreparedBatch | Coroutine[Any, Any, PreparedBatch]:
        """Return what may be stored here of a producer's batch; raise ``RecordsError``.

        Where that takes more than a look in passing, what to await for it: most batches are not worth a coroutine.
        """
        config, entry_format = self.topic.config, self.entry_format
        self._check_size(len(data))
        try:
            batch = checked(data, entry_format, hurried=True)
        except TakesLong:
            return self._check_apart(data, entry_format)
        if entry_format == PULSAR or config.compacted or self._may_be_untimely(batch):
            return self._look_closer(batch, entry_format)
        data, header, _, _ = batch
        return _prepared_batch((data, header, entry_format, None, batch.earliest_ms))

    async def _check_apart(self, data: memoryview, entry_format: str) -> PreparedBatch:
        batch = await asyncio.get_running_loop().run_in_executor(None, checked, data, entry_format)
        return await self._look_closer(batch, entry_format)

    async def _look_closer(self, batch: CheckedBatch, entry_format: str) -> PreparedBatch:
        """Do what takes a look at each record."""
        config = self.topic.config
        if config.compacted:
            await self._check_keys(batch)
        if self._may_be_untimely(batch):
            await self._refuse_untimely(batch)
        if entry_format == PULSAR and batch.header.is_transactional:
            entry_format = KAFKA  # who reads committed records only must see what belongs together
        if entry_format == PULSAR and batch.header.records_count > MAX_MESSAGES:
            entry_format = KAFKA  # no batch of Pulsar's has so many
        if entry_format != PULSAR:
            return PreparedBatch(batch.data, batch.header, entry_format, earliest_ms=batch.earliest_ms)
        now_ms, header = self._clock(), batch.header
        if config.log_append_time:
            data = memoryview(with_log_append_time(batch.data, header, now_ms))
            batch = batch._replace(data=data, header=read_header(data), earliest_ms=now_ms)
        codec = header.codec if config.compression_type == "producer" else self._codec()
        began_ns = time.perf_counter_ns()
        framed = await pulsar_framed(batch, now_ms, codec)
        self.figures.converted_in_ns += time.perf_counter_ns() - began_ns
        if codec is not header.codec:
            self._check_size(len(framed))
        return PreparedBatch(batch.data, batch.header, entry_format, framed, batch.earliest_ms)

    def produce(self, draft: PreparedBatch) -> PlacedBatch:
        """Append one checked batch of a producer; raise ``RecordsError``, ``ProducerRefused`` or ``LedgerError``."""
        config, header = self.topic.config, draft.header
        if header.producer_id >= 0:
            try:
                kept = self.producers.check(header)
            except OutOfOrderSequence as refused:
                if time.monotonic() < self._settles_until_s and refused.is_early(header.base_sequence):
                    raise BatchTooEarly(
                        f"the batch with sequence {refused.due}, which is due before it, was refused lately and "
                        "has not come again"
                    ) from None
                _out_of_order.warning(
                    "%s-%d: a batch is refused with OUT_OF_ORDER_SEQUENCE_NUMBER: of producer %d (epoch %d) sequence "
                    "%d was due, and %d came", self.topic.kafka_name, self.index, header.producer_id,
                    header.producer_epoch, refused.due, header.base_sequence,
                )  # fmt: skip
                raise
            if kept is not None:
                return self._repeated(header, kept)
        now_ms, earliest_ms = self._clock(), draft.earliest_ms
        if self.log.room.refusal:
            self._refuse(header, StorageFull(self.log.room.refusal), now_ms)
        append_time = NO_TIMESTAMP
        if draft.framed is not None:
            append_time = header.max_timestamp if config.log_append_time else NO_TIMESTAMP
            latest = header.max_timestamp if header.max_timestamp > 0 else now_ms
            base_offset, done = self._append((draft.framed,), header, latest, earliest_ms, now_ms)
        else:
            data = draft.data
            if config.log_append_time:
                append_time = earliest_ms = now_ms
                data = memoryview(with_log_append_time(data, header, now_ms))
                header = read_header(data)
            if config.compression_type != "producer":
                data, header = self._recompressed(data, header)
            base_offset, done = self.append(
                data, header, now_ms, earliest_ms=earliest_ms, mixed=draft.entry_format == MIXED_KAFKA
            )
        if header.producer_id >= 0:
            self.producers.add(header, base_offset)
        return _placed_batch((base_offset, append_time, done))

    async def may_end_transactions(self) -> None:
        """Have all know from now on that there are transactions in this log; before the first one is written."""
        if not self.log.has_transactions:
            await self.log.note_transactions()
        self.log.transactions = self.producers.transactions

    def end_transaction(self, marker: EndTransactionMarker) -> asyncio.Future[None] | None:
        """Write a marker, unless it is there already; give what tells that it is durable, None if that is so at once.

        Raises ``ProducerRefused`` or ``LedgerError``. `may_end_transactions` has been awaited before.
        """
        producers, log = self.producers, self.log
        if self.topic.config.is_migrating:
            return None  # nothing of that transaction could come here
        if not producers.check_marker(marker):
            return self._last_done if log.high_watermark < log.log_end_offset else None
        now_ms = self._clock()
        batch = marker_batch(
            marker.producer_id,
            marker.epoch,
            now_ms,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
        )
        data = memoryview(batch)
        offset = log.log_end_offset
        producers.settled(log.high_watermark)
        producers.end(marker, offset, now_ms)  # before: whoever is told what is visible has to know it
        try:
            _, done = self.append(data, read_header(data), now_ms)
        except BaseException:
            producers.take_back(offset)
            raise
        producers.transactions.forget_before(log.log_start_offset)
        return done

    def stated(self, data: memoryview, header: BatchHeader, base_offset: int) -> None:
        """Note what a coordinator has stated of a transaction; its batches have no sequences."""
        if header.is_control and (found := read_marker(data)) is not None:
            marker = EndTransactionMarker(
                header.producer_id, header.producer_epoch, found.committed, found.coordinator_epoch
            )
            self.producers.end(marker, base_offset, header.max_timestamp)

    def take_over(self, batch: KeptBatch) -> asyncio.Future[None] | None:
        """Write a batch of another cluster's at the offset that it has there; give what tells that it is durable.

        Where offsets are missing before it, batches without records take them, as in a compacted log of Kafka's. Its
        producer has its name from the other cluster, so nothing is kept of it but transactions: here another one may
        have that name. Raises `NotInPlace` or ``LedgerError``. `may_end_transactions` has been awaited before.
        """
        log, header, now_ms = self.log, batch.header, self._clock()
        if header.base_offset < log.log_end_offset:
            raise NotInPlace(
                f"the batch begins at offset {header.base_offset}, and the log ends at {log.log_end_offset}"
            )
        while (missing := header.base_offset - log.log_end_offset) > 0:
            filler = memoryview(gap(log.log_end_offset, min(missing, MAX_GAP)))
            self.append(filler, read_header(filler), now_ms, leader_epoch=NO_LEADER_EPOCH)
        marker = read_marker(batch.data) if header.is_control and header.is_transactional else None
        if marker is not None:  # before: whoever is told what is visible has to know it
            self.producers.transactions.end(
                header.producer_id, header.base_offset, committed=marker.committed
            )
        try:
            _, done = self.append(
                batch.data, header, now_ms, earliest_ms=batch.earliest_ms, leader_epoch=NO_LEADER_EPOCH
            )
        except BaseException:
            self.producers.take_back(header.base_offset)
            raise
        return done

    def append(
        self,
        data: memoryview,
        header: BatchHeader,
        now_ms: int,
        *,
        earliest_ms: int = UNKNOWN_TIME,
        mixed: bool = False,
        leader_epoch: int | None = None,
    ) -> tuple[int, asyncio.Future[None] | None]:
        """Write one batch, whose CRC holds, with the fields filled in that the broker owns.

        ``leader_epoch`` is this broker's; `NO_LEADER_EPOCH` for what another cluster's leader took in.
        """
        head = kafka_message_head(now_ms, header.last_offset_delta + 1, mixed=mixed) + _UNCOUNTED.pack(
            self.log.log_end_offset,
            header.length,
            self.leader_epoch if leader_epoch is None else leader_epoch,
            header.magic,
            header.crc,
        )
        message = (head, data[_UNCOUNTED.size :])
        return self._append(message, header, header.max_timestamp, earliest_ms, now_ms, header.crc)

    def _append(
        self,
        message: Sequence[Buffer],
        header: BatchHeader,
        timestamp_ms: int,
        earliest_ms: int,
        now_ms: int,
        tail_crc: int | None = None,
    ) -> tuple[int, asyncio.Future[None] | None]:
        opens_at = NOT_OPENED
        if header.producer_id >= 0 and header.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL:
            # Open before anybody can be told that the batch is visible.
            opens_at = self.producers.transactions.begin(header.producer_id, self.log.log_end_offset)
        messages = header.last_offset_delta + 1
        try:
            pending = self.log.append(
                message,
                messages=messages,
                timestamp_ms=timestamp_ms,
                earliest_ms=earliest_ms,
                tail_crc=tail_crc,
            )
        except LedgerError as error:
            if opens_at != NOT_OPENED:
                self.producers.transactions.take_back(opens_at)
            self._refuse(header, error, now_ms)
        figures = self.figures
        figures.produces += 1
        figures.messages_in += header.records_count
        figures.bytes_in += header.length + _BEFORE_LENGTH
        if figures.buckets is not None:
            figures.buckets.placed(header.length + _BEFORE_LENGTH, pending.done)
        self._last_done = pending.done
        self._appended_ms = now_ms
        self._refusal = None
        return pending.base_offset, pending.done

    def _refuse(self, header: BatchHeader, error: LedgerError, now_ms: int) -> NoReturn:
        """Raise why a batch is not stored; what its producer sent behind it is to come again, too."""
        self._refusal = AppendRefusal(now_ms, error)
        if header.producer_id >= 0:
            self.producers.not_kept(header)
            self.settles()
        raise error

    @property
    def refusal(self) -> AppendRefusal | None:
        """What storage said to the last producer; None if it took what it was given."""
        last = self._last_done
        if self._refusal is None and last is not None and last.done() and not last.cancelled():
            error = last.exception()
            return None if error is None else AppendRefusal(self._appended_ms, error)
        return self._refusal

    def _taken_back(self, what: TakenBack) -> None:
        """Storage did not keep batches after all."""
        self.producers.take_back(what.offset)
        self.settles()
        self._refusal = AppendRefusal(self._clock(), what.error)

    def let_go_of_log(self) -> None:
        """Hear of the log no more: it is closed, or another partition holds it."""
        self.log.on_moved = None
        with contextlib.suppress(ValueError):
            self.log.on_taken_back.remove(self._taken_back)

    def _repeated(self, header: BatchHeader, kept: Kept) -> PlacedBatch:
        """A batch sent twice is acknowledged as the first one was, and not before it."""
        self.figures.produces += 1
        waits = kept.base_offset + header.last_offset_delta >= self.log.high_watermark
        append_time = kept.timestamp if self.topic.config.log_append_time else NO_TIMESTAMP
        return PlacedBatch(kept.base_offset, append_time, self._last_done if waits else None)

    def _may_be_untimely(self, batch: CheckedBatch) -> bool:
        config, header = self.topic.config, batch.header
        if config.log_append_time:
            return header.attributes & LOG_APPEND_TIME != 0
        now_ms = self._clock()
        before_ms = config.message_timestamp_before_max_ms
        return header.max_timestamp - now_ms > config.message_timestamp_after_max_ms or (
            before_ms < _NO_BOUND_MS and now_ms - batch.earliest_ms > before_ms
        )

    async def _refuse_untimely(self, batch: CheckedBatch) -> None:
        """Look at every record, and raise ``InvalidTimestamp`` if one may not be stored: those without a time may."""
        config, header, now_ms = self.topic.config, batch.header, self._clock()
        if config.log_append_time:
            why = (
                "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
            )
            raise InvalidTimestamp([(number, why) for number in range(min(header.records_count, _MAX_NAMED))])
        least = now_ms - config.message_timestamp_before_max_ms
        most = now_ms + config.message_timestamp_after_max_ms
        found = await _looked_at(header, _untimely, batch.data, least, most)
        if found:
            raise InvalidTimestamp(found)

    async def _check_keys(self, batch: CheckedBatch) -> None:
        await load_apart("magnetar.records.compaction")  # few topics are compacted
        from magnetar.records.compaction import keyless_records

        keyless = await _looked_at(batch.header, keyless_records, batch.data)
        if keyless:
            raise KeylessRecords(f"{self.topic.kafka_name}-{self.index}", keyless)

    def _recompressed(self, data: memoryview, header: BatchHeader) -> tuple[memoryview, BatchHeader]:
        codec = self._codec()
        if header.codec is codec:
            return data, header
        data = memoryview(recompressed(data, header, codec))
        self._check_size(len(data))
        return data, read_header(data)

    def _check_size(self, nbytes: int) -> None:
        """Raise `BatchTooLarge`: Kafka looks at a batch as it came, and again as the topic's codec has made it."""
        most = self.topic.config.max_message_bytes
        if nbytes > most:
            raise BatchTooLarge(f"{nbytes} bytes, and the topic takes {most}")

    def _codec(self) -> Codec:
        wanted = self.topic.config.compression_type
        return Codec.none if wanted == "uncompressed" else Codec[wanted]

    # -- reading -----------------------------------------------------------------------------------------------

    async def read(self, offset: int, max_bytes: int, *, committed: bool = False) -> tuple[list[Batch], int]:
        """Return the batches from the one that holds ``offset`` on, and how many bytes they are.

        ``committed`` wants none from the last stable offset on.
        """
        ahead, log = self._ahead, self.log
        if committed and log.last_stable_offset < log.high_watermark:
            return await self._read(offset, max_bytes, log.last_stable_offset)
        if ahead is None or max_bytes < MIN_BYTES or offset < log.log_start_offset:
            return await self._read(offset, max_bytes)
        batches, size = ahead.take(self, offset, max_bytes) or await self._read(offset, max_bytes)
        if size >= max_bytes // 2:
            following = read_header(batches[-1]).last_offset + 1
            ahead.plan(self, following, max_bytes, lambda: self._read(following, max_bytes))
        return batches, size

    async def _read(self, offset: int, max_bytes: int, up_to: int | None = None) -> tuple[list[Batch], int]:
        try:
            batches, size = await self._read_stored(offset, max_bytes, up_to)
        except EXPECTED:
            raise
        except Exception as error:
            if self.closed is None:
                self.unread = read_failed(
                    self.topic.kafka_name, self.index, self.figures, self._clock(), offset, error
                )
            raise
        if self.unread is not None and self.unread.is_over(batches):
            self.unread = None
        return batches, size

    async def _read_stored(self, offset: int, max_bytes: int, up_to: int | None) -> tuple[list[Batch], int]:
        entries = await self.log.read(offset, max_bytes=max_bytes + _HEADS_BYTES, up_to=up_to)
        chunked = self._chunked
        amid_pieces = chunked is not None and chunked.follows(offset)
        batches = None if amid_pieces else as_stored(entries)
        if batches is None:
            began_ns = time.perf_counter_ns()
            parts = await self._conversions.parts_of(entries, max_bytes, self._frame_of)
            self.figures.converted_out_ns += time.perf_counter_ns() - began_ns
            batches = [part.batch for part in parts]
            if parts and (amid_pieces or any(part.piece for part in parts)):
                if chunked is None:
                    chunked = self._chunked = ChunkedMessages(
                        self.log, self._conversions.chunked_bytes, self._frame_of
                    )
                batches = await chunked.batches(offset, entries, parts, max_bytes)
            return batches, sum(map(len, batches))
        size = sum(map(len, batches))
        while size > max_bytes and len(batches) > 1:
            size -= len(batches.pop())
        return batches, size

    def wait(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called each time more may be read, until ``leave``."""
        if self._waiting is _NOBODY:
            self._waiting = set()
        self._waiting.add(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        if self._waiting is not _NOBODY:
            self._waiting.discard(wake)
            self._waiting = self._waiting or _NOBODY

    @property
    def waiting(self) -> int:
        """How many fetches are parked here."""
        return len(self._waiting)

    def _ring(self) -> None:
        if self._waiting:
            for wake in tuple(self._waiting):
                wake()


async def _looked_at(header: BatchHeader, look: Callable[..., _T], *asked: object) -> _T:
    """Return what a look at each record finds; at many of them a thread looks, and the event loop goes on."""
    if header.records_count <= _FEW_RECORDS:
        return look(*asked)
    return await asyncio.get_running_loop().run_in_executor(None, look, *asked)


def _untimely(data: memoryview, least: int, most: int) -> list[tuple[int, str]]:
    """Return the first `_MAX_NAMED` records with a timestamp out of ``[least, most]``, and what Kafka says of each."""
    untimely = (
        (
            number,
            f"Timestamp {record.timestamp} of message with offset {number} is out of range. "
            f"The timestamp should be within [{least}, {most}]",
        )
        for number, record in enumerate(each_record(data))
        if record.timestamp != NO_TIMESTAMP and not least <= record.timestamp <= most
    )
    return list(islice(untimely, _MAX_NAMED))
