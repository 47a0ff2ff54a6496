"""Dead letters: what a share group gives up goes to a topic, its dead-letter queue (KIP-1191).

By then its offsets are durably `RecordState.ARCHIVING`; when the letters are durable, they are archived. A crash
between the two writes them again. As in Kafka they are archived, too, when they cannot be written: after some tries
where another one may help, at once where none does (there is no such topic, or it may not be one).

A letter goes to the partition of the source's number, modulo how many there are, and tells in its headers where the
record lies, whose it was and why it was given up. With ``errors.deadletterqueue.copy.record.enable`` it brings the
record's key, value and headers; what has gone by retention or is too large for the topic it does without.

One batch of a share partition is on its way at a time. Of the records that are copied one source batch is unpacked for
a share partition at a time, and of larger ones a few on the whole broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from magnetar.base.errors import BrokerError
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.share_partition import DeadLetters
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.shares.dead_letter_topics import DeadLetterTopics, LetterCounts, NoDeadLetterQueue
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata import MetadataError
from magnetar.records.batch import (
    HEADER_BYTES,
    Header,
    PlainRecord,
    encode_batch,
    read_header,
    records_in,
)
from magnetar.records.compression import Codec, decompress
from magnetar.records.errors import RecordsError
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode

REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."
_TRIES = 5
_PAUSE_S = 1.0
_LAST_PAUSE_S = 30.0
_JITTER = 0.2
_MAX_BYTES = 1 << 20
_MAX_RECORDS = 1000
_LARGE_BYTES = 1 << 20
_RECORD_BYTES = 50
"""What a record takes at most beside its key, value and headers; a header beside its key and value takes `_HEADER`."""
_HEADER = 10
_QUIET_S = 30.0
_HOPELESS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
T = TypeVar("T")
_log = logging.getLogger(__name__)


class DeadLetterQueue:
    """Where one share partition's letters wait; they are written one batch after the other."""

    def __init__(
        self,
        group_id: str,
        partition: Callable[[], Partition],
        topics: DeadLetterTopics,
        settings: Callable[[], ShareSettings],
        archived: Callable[[list[DeadLetters]], None],
    ) -> None:
        """``archived`` is called with letters that are durable, or given up."""
        self._group_id = group_id
        self._partition = partition
        self._topics = topics
        self._settings = settings
        self._archived = archived
        self._letters: deque[DeadLetters] = deque()
        self._source = _Source(partition, topics.large)
        self._task: asyncio.Task[None] | None = None
        self._told_s = -_QUIET_S

    def add(self, letters: Iterable[DeadLetters]) -> None:
        """Have letters written, whose offsets are durably given up."""
        for each in letters:
            before = self._letters[-1] if self._letters else None
            if before is not None and before.last + 1 == each.first and before[2:] == each[2:]:
                self._letters[-1] = before._replace(last=each.last)
            else:
                self._letters.append(each)
        if self._letters and self._task is None:
            self._task = self._topics.background.once("writing dead letters", self._run())

    def end(self) -> None:
        """Write no more: somebody else finds what is given up, and writes it."""
        self._letters.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._letters:
                taken = await self._send()
                self._archived(taken)
        finally:
            self._source.close()
            self._task = None

    async def _send(self) -> list[DeadLetters]:
        """Write the first letters as one batch; return which they were."""
        draft: _Draft | None = None
        counts = self._topics.counts.setdefault(self._group_id, LetterCounts())
        for tries in range(1, _TRIES + 1):
            counts.produces += 1
            try:
                source, settings = self._partition(), self._settings()
                topic = await self._topics.find(self._group_id, settings, source.topic)
                if draft is None:
                    # Rather a letter without its record than none.
                    copies = settings.errors_deadletterqueue_copy_record_enable and tries < _TRIES
                    draft = await self._draft(topic, settings, copies=copies)
                await self._topics.append(topic, source.index % topic.partitions, draft.batch)
                counts.records += sum(each.last - each.first + 1 for each in draft.taken)
                break
            except (BrokerError, LedgerError, MetadataError, CoordinatorRefused) as error:
                counts.failed += 1
                self._source.close()
                hopeless = isinstance(error, CoordinatorRefused) and error.code in _HOPELESS
                if hopeless or tries == _TRIES:
                    self._tell(error)
                    break
            except (NoDeadLetterQueue, RecordsError) as error:
                counts.failed += 1
                self._tell(error)
                break
            pause_s = min(_PAUSE_S * 2 ** (tries - 1), _LAST_PAUSE_S)
            await asyncio.sleep(pause_s * random.uniform(1 - _JITTER, 1 + _JITTER))
        if draft is not None:
            return draft.taken
        taken = list(self._letters)
        self._letters.clear()
        return taken

    def _tell(self, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= _QUIET_S:
            self._told_s = now_s
            partition = self._partition()
            _log.warning(
                "share group %s archives records of %s-%d whose dead letters are not written: %s",
                self._group_id,
                partition.topic.kafka_name,
                partition.index,
                error,
            )

    async def _draft(self, topic: Topic, settings: ShareSettings, *, copies: bool) -> _Draft:
        """Take the first letters, as many as a batch of the topic's may hold.

        Raises ``LedgerError``, ``BrokerError`` if the records cannot be had; then none is taken.
        """
        partition = self._partition()
        draft = _Draft(
            partition.topic.kafka_name,
            partition.index,
            self._group_id,
            settings.group_share_delivery_count_limit,
            min(topic.config.max_message_bytes, _MAX_BYTES) - HEADER_BYTES,
        )
        while self._letters and not draft.is_full:
            letters = self._letters[0]
            if copies:
                try:
                    known = await self._source.open(letters.first)
                except (LedgerError, BrokerError):
                    if draft.taken:
                        break
                    raise
                last = min(letters.last, known)
                end = await _apart(partial(draft.fill, letters, last, self._source))
            else:
                end = draft.fill(letters, letters.last, None)
            if not self._letters:  # they are somebody else's by now
                break
            letters = self._letters[0]  # more may have come to it
            if end > letters.last:
                self._letters.popleft()
            else:
                self._letters[0] = letters._replace(first=end)
        draft.batch = await _apart(draft.encode)
        return draft


async def _apart(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)


class _Row(NamedTuple):
    offset: int
    deliveries: int
    why: str
    record: PlainRecord | None


class _Draft:
    """A batch of dead letters."""

    def __init__(self, topic: str, partition: int, group_id: str, limit: int, room: int) -> None:
        self.taken: list[DeadLetters] = []
        self.is_full = False
        self.batch = b""
        self._topic = topic.encode()
        self._partition = b"%d" % partition
        self._group_id = group_id.encode()
        self._limit = limit
        self._room = room
        self._rows: list[_Row] = []
        # Names of the headers, their frames and numbers.
        self._each_bytes = _RECORD_BYTES + 260 + len(self._topic) + len(self._group_id)

    def fill(self, letters: DeadLetters, last: int, source: _Source | None) -> int:
        """Take letters up to ``last``, as far as there is room; return the first that is left."""
        first, _, deliveries, rejected = letters
        if rejected is None:  # Kafka tells so, too
            rejected = deliveries < self._limit
        why = REJECTED if rejected else TOO_OFTEN
        offset = first
        while offset <= last:
            record = None if source is None else source.record(offset)
            size = self._each_bytes + (0 if record is None else _content_bytes(record))
            if record is not None and size > self._room and not self._rows:
                record, size = None, self._each_bytes
            if self._rows and (size > self._room or len(self._rows) >= _MAX_RECORDS):
                self.is_full = True
                break
            self._rows.append(_Row(offset, deliveries, why, record))
            self._room -= size
            offset += 1
        if offset > first:
            self.taken.append(letters._replace(last=offset - 1))
        return offset

    def encode(self) -> bytes:
        """Return the batch."""
        now_ms = wall_clock_ms()
        return encode_batch([self._letter(row, now_ms) for row in self._rows])

    def _letter(self, row: _Row, now_ms: int) -> PlainRecord:
        told = (
            Header("__dlq.errors.topic", self._topic),
            Header("__dlq.errors.partition", self._partition),
            Header("__dlq.errors.offset", b"%d" % row.offset),
            Header("__dlq.errors.group", self._group_id),
            Header("__dlq.errors.delivery.count", b"%d" % row.deliveries),
            Header("__dlq.errors.message", row.why.encode()),
        )
        if row.record is None:
            return PlainRecord(None, None, told, now_ms)
        return PlainRecord(row.record.key, row.record.value, (*row.record.headers, *told), now_ms)


def _content_bytes(record: PlainRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(_HEADER + 4 * len(key) + len(value or b"") for key, value in record.headers)


class _Source:
    """The records of a partition that are copied, in rising order if it is to be quick."""

    def __init__(self, partition: Callable[[], Partition], large: asyncio.Semaphore) -> None:
        self._partition = partition
        self._large = large
        self._has_large = False
        self._records: Iterator[PlainRecord] = iter(())
        self._at: PlainRecord | None = None
        self._first, self._last = 0, -1

    async def open(self, offset: int) -> int:
        """Have the batch of an offset at hand; return up to where records are known, or known not to be.

        Raises ``LedgerError``, ``BrokerError``.
        """
        if self._first <= offset <= self._last:
            return self._last
        self.close()
        partition = self._partition()
        start = partition.log.log_start_offset
        if offset < start:
            return start - 1
        batches, _ = await partition.read(offset, 1)
        if not batches:
            return offset
        batch = batches[0]
        header = read_header(batch)
        if header.base_offset > offset:
            return header.base_offset - 1
        if header.is_control:
            return header.last_offset
        body = memoryview(batch)[HEADER_BYTES : header.size]
        if header.codec is not Codec.none:
            await self._large.acquire()
            self._has_large = True
            try:
                body = await _apart(partial(decompress, header.codec, body))
            except RecordsError as error:
                _log.warning("a batch whose records go to a dead-letter queue cannot be unpacked: %s", error)
                self.close()
                return header.last_offset
            except BaseException:
                self.close()
                raise
            if len(body) < _LARGE_BYTES:
                self._release()
        self._records = records_in(body, header)
        self._first, self._last = offset, header.last_offset
        return self._last

    def record(self, offset: int) -> PlainRecord | None:
        """Return a record of the batch that is at hand, None if there is none; the same may be asked for again."""
        if not self._first <= offset <= self._last:
            return None
        self._first = offset
        try:
            while self._at is None or self._at.offset < offset:
                self._at = next(self._records)
        except (StopIteration, RecordsError):
            self._records, self._at = iter(()), None
            return None
        return self._at if self._at.offset == offset else None

    def close(self) -> None:
        """Let go of the batch."""
        self._records, self._at = iter(()), None
        self._first, self._last = 0, -1
        self._release()

    def _release(self) -> None:
        if self._has_large:
            self._has_large = False
            self._large.release()
