"""Fetch: record batches as they lie in the ledgers, at once or as soon as there are enough of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.auth import Right
from magnetar.base.slices import batched
from magnetar.kafka.errors import TopicDenied, code_for
from magnetar.kafka.handlers.asked import check_epoch, find_partition, may_read, refusal_of
from magnetar.kafka.handlers.leaders import TELLS_LEADER, Misled, tell_leaders
from magnetar.kafka.partitions.formats import Batch
from magnetar.kafka.partitions.opening_ahead import WANTED_OF_A_REQUEST
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.settings import KafkaSettings
from magnetar.ledger.durations import Durations
from magnetar.ledger.transactions import LogTransactions
from magnetar.records.batch import read_header
from magnetar.serving.fetch_sessions import INVALID_SESSION, FetchedPartition, FetchSession, asks_of
from magnetar.serving.wakeups import Wakeup
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.fetch_request import FetchRequest
from magnetar.wire.kafka.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

READ_COMMITTED = 1
_FIRST_WITH_LEADERS = 16
# Larger answers are slower: they leave the processors' caches, on both sides; and each lies in memory until it is sent.
# The Java client takes longer for each answer than for what it holds, and is faster with what it asks for by default.
_MAX_PARTITION_BYTES = 512 << 10
_MAX_PARTITION_BYTES_OF = {"apache-kafka-java": 1 << 20}
_MAX_ANSWER_BYTES = 4 << 20
# After so many, others have their turn. To look at the clock, as `pace` does, costs more than the usual few rows may.
_ROWS_AT_A_STRETCH = 256
_MIN_ROOM = 64 << 10  # with less left, the next partition waits for the next answer
MAX_WAIT_MS = 60_000
"""A fetch is answered by then whatever it asks for: only who is written to can be noticed to have vanished."""
_LOOK_FOR_ROOM_S = 0.05
_ROW_BYTES = 60
"""What is said of a partition beside its records, with a share of its topic's id and of the answer's head."""
_LAST_OFFSET = Struct(">q15xi")
"""Of a batch: its base offset, and how far behind that its last offset is."""
_EXPECTED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
"""What Kafka does not count as a failure: the client is told, and does something about it."""


class _Limits(NamedTuple):
    """What an answer may hold, and which records."""

    answer_bytes: int
    partition_bytes: int
    isolation_level: int
    reads: Durations | None = None
    """Counts how long reads take, where a dialect asks for that."""


async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Answer with what is readable, or wait for ``min_bytes`` until ``max_wait_ms``."""
    named: list[FetchedPartition] = []
    for ask in asks_of(request):
        named.append(ask)
        if len(named) % _ROWS_AT_A_STRETCH == 0:
            await asyncio.sleep(0)
    session, asks, error = context.kafka.fetch_sessions.resolve(request, named, context.account)
    if error:
        return FetchResponse(error_code=error, session_id=INVALID_SESSION)
    memory = context.kafka.broker.serving.memory
    while memory.is_full:  # noqa: ASYNC110 - others do not take their answers; one more would be kept as well
        await asyncio.sleep(_LOOK_FOR_ROOM_S)
    settings = context.kafka.broker.settings.of(KafkaSettings)
    most = min(request.max_bytes, settings.fetch_max_bytes, _MAX_ANSWER_BYTES)
    quotas = context.kafka.quotas.get() if context.kafka.quotas.enabled else None
    if quotas is not None and (may := quotas.max_fetch_bytes(context.who)) is not None:
        most = min(most, may)  # more would be sure to be withheld
    limits = _Limits(
        min(most, max(memory.room_bytes, _MIN_ROOM)),
        _MAX_PARTITION_BYTES_OF.get(context.software.name, _MAX_PARTITION_BYTES),
        request.isolation_level,
        context.kafka.reads,
    )
    enough = min(request.min_bytes, _MAX_PARTITION_BYTES // 2, most)
    found = await _find(asks, context)
    ends = _ends(found, limits) if len(found) <= _ROWS_AT_A_STRETCH else await _many_ends(found, limits)
    rows, size, failed = await _read_all(asks, found, limits)
    if size < enough and not failed and asks and request.max_wait_ms > 0:
        began = perf_counter()
        rows = await _until_enough(request, context, asks, found, limits, enough, rows, ends)
        context.waited_s = min(perf_counter() - began, request.max_wait_ms / 1000)
    is_full = session is None or request.session_epoch <= 0
    if quotas is None:
        return await _answer(context, session, asks, found, rows, answer_all=is_full)
    wait_ms, is_withheld = quotas.fetched(context.who, sum(map(_size, rows)))
    if is_withheld:
        return _withheld(context, session, wait_ms, is_full=is_full)
    answer = await _answer(context, session, asks, found, rows, answer_all=is_full)
    answer.throttle_time_ms = wait_ms
    return answer


def _size(row: PartitionData) -> int:
    """Return about what a row with records adds to an answer, in bytes."""
    batches: Any = row.records
    return _ROW_BYTES + sum(map(len, batches)) if batches else 0


def _withheld(
    context: RequestContext, session: FetchSession | None, wait_ms: int, *, is_full: bool
) -> FetchResponse:
    """Answer a consumer that has to wait: with nothing, and as if it had not asked, but that a session goes on."""
    session_id = INVALID_SESSION
    if session is not None:
        if is_full:
            context.kafka.fetch_sessions.take_back(session)
        else:
            session_id = session.session_id
    return FetchResponse(throttle_time_ms=wait_ms, session_id=session_id)


async def _find(asks: list[FetchedPartition], context: RequestContext) -> list[Partition | ErrorCode]:
    """Return each ask's partition, or why there is none."""
    found: list[Partition | ErrorCode] = []
    opened, ahead = context.kafka.partitions.opened, context.kafka.partitions.ahead
    access = context.access
    for at, ask in enumerate(asks):
        if len(found) % _ROWS_AT_A_STRETCH == _ROWS_AT_A_STRETCH - 1:
            await asyncio.sleep(0)
        if access is not None and not may_read(context, access, ask.topic, ask.topic_id):
            found.append(code_for(TopicDenied(f"topic {ask.topic}: no grant to consume it")))
            continue
        partition = opened(ask.topic, ask.topic_id, ask.partition.partition)
        if partition is None:
            if ahead is not None:
                some = asks[at : at + WANTED_OF_A_REQUEST]
                named = ((each.topic, each.topic_id, each.partition.partition) for each in some)
                ahead.want_all(named, access, Right.consume)
            try:
                partition = await find_partition(context, ask.topic, ask.topic_id, ask.partition.partition)
            except Exception as error:
                name = ask.topic or ask.topic_id.hex()
                found.append(
                    refusal_of(name, ask.partition.partition, error)
                )  # the error itself would keep all that it went through
                continue
        found.append(partition)
    return found


def _ends(found: Sequence[Partition | ErrorCode], limits: _Limits) -> list[int]:
    """Return where what the client may read ends in each partition."""
    if limits.isolation_level == READ_COMMITTED:
        return [each.log.last_stable_offset for each in found if isinstance(each, Partition)]
    return [each.log.high_watermark for each in found if isinstance(each, Partition)]


async def _many_ends(found: list[Partition | ErrorCode], limits: _Limits) -> list[int]:
    ends: list[int] = []
    for some in batched(found, _ROWS_AT_A_STRETCH):
        ends += _ends(some, limits)
        await asyncio.sleep(0)
    return ends


async def _until_enough(
    request: FetchRequest,
    context: RequestContext,
    asks: list[FetchedPartition],
    found: list[Partition | ErrorCode],
    limits: _Limits,
    enough: int,
    rows: list[PartitionData],
    ends: list[int],
) -> list[PartitionData]:
    """Park until an append brings enough or the time is up; give the rows as they are then.

    ``ends`` tells where the partitions ended before ``rows`` were read. What the client may read is asked again: its
    login may have ended meanwhile (`AuthenticationRequired`), or a grant been taken back.
    """
    wakeups = context.kafka.wakeups
    loop = asyncio.get_running_loop()
    partitions: dict[Partition, None] = {}  # whoever names one a hundred thousand times waits for it once
    for some in batched(found, _ROWS_AT_A_STRETCH):
        if partitions:
            await asyncio.sleep(0)
        partitions |= dict.fromkeys(each for each in some if isinstance(each, Partition))
    wakeup = Wakeup(wakeups)
    time_is_up = False

    def wake() -> None:
        wakeup.wake()

    def stop() -> None:
        nonlocal time_is_up
        time_is_up = True
        wake()

    timer = loop.call_later(min(request.max_wait_ms, MAX_WAIT_MS) / 1000, stop)
    for partition in partitions:
        partition.wait(wake)
    now = _ends(found, limits) if len(found) <= _ROWS_AT_A_STRETCH else await _many_ends(found, limits)
    if now != ends:  # a read that waited for the disk may have missed what came meanwhile
        wake()
    try:
        while True:
            await wakeup
            wakeup = Wakeup(wakeups)
            if context.login is not None:
                context.login.check(request.API_KEY)
            if context.access is not None:
                found = await _find(asks, context)
            rows, size, failed = await _read_all(asks, found, limits)
            if size >= enough or failed or time_is_up:
                return rows
    finally:
        timer.cancel()
        for partition in partitions:
            partition.leave(wake)


async def _read_all(
    asks: list[FetchedPartition], found: list[Partition | ErrorCode], limits: _Limits
) -> tuple[list[PartitionData], int, bool]:
    """Return a row per ask, how many bytes they hold, and whether one failed."""
    rows: list[PartitionData] = []
    size, failed = 0, False
    for ask, partition in zip(asks, found, strict=True):
        if len(rows) % _ROWS_AT_A_STRETCH == _ROWS_AT_A_STRETCH - 1:
            await asyncio.sleep(0)
        if isinstance(partition, ErrorCode):
            rows.append(_failed(ask, partition))
            failed = True
            continue
        row, taken = await _read_one(ask, partition, limits, limits.answer_bytes - size, size == 0)
        size += taken
        failed = failed or row.error_code != 0 or row.diverging_epoch is not None
        rows.append(row)
    return rows, size, failed


async def _read_one(
    ask: FetchedPartition, partition: Partition, limits: _Limits, room: int, is_first: bool
) -> tuple[PartitionData, int]:
    asked, log = ask.partition, partition.log
    if partition.closed is not None:
        return _failed(ask, code_for(partition.closed)), 0
    code = check_epoch(asked.current_leader_epoch, partition)
    if code:
        return _failed(ask, code), 0
    row = PartitionData(
        partition_index=asked.partition,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if limits.isolation_level == READ_COMMITTED else None,
        records=b"",
    )
    if asked.last_fetched_epoch >= 0:
        epoch, end_offset = partition.epochs.end_of(asked.last_fetched_epoch, log.high_watermark)
        if end_offset < 0:  # an epoch that has not come yet: as Kafka says it
            return _failed(ask, ErrorCode.OFFSET_OUT_OF_RANGE), 0
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
            row.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return row, 0
    if room < min(asked.partition_max_bytes, _MIN_ROOM) and not is_first:
        return row, 0
    try:
        most = min(asked.partition_max_bytes, max(room, 1), limits.partition_bytes)
        committed = limits.isolation_level == READ_COMMITTED
        began = 0.0 if limits.reads is None else perf_counter()
        batches, size = await partition.read(asked.fetch_offset, most, committed=committed)
        if limits.reads is not None:
            limits.reads.add(perf_counter() - began)
    except Exception as error:
        return _failed(ask, code_for(partition.closed or error)), 0
    if not batches or (size > room and not is_first):
        return row, 0
    row.records = batches
    if committed and (transactions := log.transactions) is not None:
        row.aborted_transactions = _aborted(transactions, asked.fetch_offset, batches)
    row.high_watermark, row.last_stable_offset = log.high_watermark, log.last_stable_offset
    return row, size


def _aborted(transactions: LogTransactions, offset: int, batches: list[Batch]) -> list[AbortedTransaction]:
    """Return the aborted transactions that have records in an answer, by the offsets of their markers."""
    end = read_header(batches[-1]).last_offset + 1
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in transactions.aborted_in(offset, end)
    ]


def _failed(ask: FetchedPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=ask.partition.partition,
        error_code=code,
        high_watermark=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _count_failed(code: int, partition: Partition | ErrorCode, context: RequestContext) -> None:
    context.kafka.requests[FetchRequest.API_KEY].errors[code] += 1
    if isinstance(partition, Partition) and code not in _EXPECTED:
        partition.figures.failed_fetches += 1


async def _answer(
    context: RequestContext,
    session: FetchSession | None,
    asks: list[FetchedPartition],
    found: list[Partition | ErrorCode],
    rows: list[PartitionData],
    *,
    answer_all: bool,
) -> FetchResponse:
    """Lay out the rows by topic; in a session only those that say something new."""
    topics: dict[tuple[str, bytes], list[PartitionData]] = {}
    served = []
    misled: list[Misled] = []
    for number, (ask, row) in enumerate(zip(asks, rows, strict=True)):
        if number % _ROWS_AT_A_STRETCH == _ROWS_AT_A_STRETCH - 1:
            await asyncio.sleep(0)
        news = row.records or row.error_code or row.diverging_epoch is not None
        known = (ask.high_watermark, ask.log_start_offset, ask.error_code)
        now = (row.high_watermark, row.log_start_offset, row.error_code)
        ask.high_watermark, ask.log_start_offset, ask.error_code = now
        partition = found[number]
        if row.records:
            served.append(ask)
            if isinstance(partition, Partition):
                batches: Any = row.records
                figures = partition.figures
                figures.fetches += 1
                figures.bytes_out += sum(map(len, batches))
                base_offset, last_delta = _LAST_OFFSET.unpack_from(batches[-1])
                figures.messages_out += base_offset + last_delta + 1 - ask.partition.fetch_offset
        else:
            if isinstance(partition, Partition):
                partition.figures.fetches += 1
            if row.error_code:
                _count_failed(row.error_code, partition, context)
                if row.error_code in TELLS_LEADER:
                    misled.append(Misled(ask.topic, ask.topic_id, row.partition_index, row))
        if answer_all or news or known != now:
            topics.setdefault((ask.topic, ask.topic_id), []).append(row)
    if session is not None:
        session.turn(served)
    tells = misled and context.api_version >= _FIRST_WITH_LEADERS
    return FetchResponse(
        node_endpoints=await tell_leaders(context, misled, LeaderIdAndEpoch, NodeEndpoint) if tells else [],
        session_id=session.session_id if session is not None else INVALID_SESSION,
        responses=[
            FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in topics.items()
        ],
    )
