"""Produce: each partition's batch goes to its log, and is acknowledged once the flush policy is met."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from magnetar.base.errors import TopicNotFound
from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.asked import find_partition, find_topic
from magnetar.kafka.handlers.leaders import TELLS_LEADER, Misled, tell_leaders
from magnetar.kafka.handlers.transactional import EPOCH_BUMPED, OF_BATCHES
from magnetar.kafka.partitions.opening_ahead import WANTED_OF_A_REQUEST
from magnetar.kafka.partitions.partition import Partition, PreparedBatch, RecordsRejected
from magnetar.ledger.errors import LedgerError
from magnetar.logs.producers import ProducerRefused
from magnetar.records.batch import ATTRIBUTES_LOW, TRANSACTIONAL, read_header
from magnetar.records.errors import InvalidRecord, RecordsError, UnsupportedCompression
from magnetar.serving.pace import MAX_SECONDS, drained, paced
from magnetar.topics.topic_config import MIGRATION
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_ALL = -1
_ZSTD = 4
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_LEADERS = 10
_FIRST_WITH_ABORTABLE = 11
_FIRST_THAT_ADDS = 12
_MAX_EXPLAINED = 1000
"""So many rows that failed are told why in words; after that the code has to do."""
_NO_ERRORS: list[BatchIndexAndErrorMessage] = []  # of all rows without, together


class NoTransactionalId(Exception):
    """A transactional batch in a request that names no transactional id."""


class InternalTopic(Exception):
    """Only the coordinators write their topics; a client's records there would change or spoil groups."""


class EncryptionRequired(Exception):
    """The topic's namespace takes messages that their producer encrypted, which Kafka's clients do not."""


async def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Store what can be stored and answer for each partition; give None if the client wants no answer.

    All appends are made before the first wait, so batches of one connection keep their order; where there are so many
    that others must have a turn between, the next request waits (``context.placed``). Of ``request`` nothing is left.
    """
    if request.acks not in (0, 1, _ALL):
        return _refused(request, ErrorCode.INVALID_REQUIRED_ACKS)
    transactional_id = request.transactional_id
    is_migration = transactional_id is not None and transactional_id.startswith(MIGRATION)
    waiting: dict[asyncio.Future[None], list[PartitionProduceResponse]] = {}
    topics = []
    failed = 0
    unexplained: dict[tuple[int, int], PartitionProduceResponse] = {}
    misled: list[Misled] = []
    encrypted = context.kafka.broker.namespaces.encrypted
    # Nearly all requests bring one batch, very many of them, and each call is one more of two hundred for such a batch.
    is_single = len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1
    yields_at = 0.0 if is_single else perf_counter() + MAX_SECONDS
    for topic in (request.topic_data.pop(),) if is_single else drained(request.topic_data):
        rows = []
        for asked in (topic.partition_data.pop(),) if is_single else drained(topic.partition_data):
            if not is_single and perf_counter() > yields_at:
                await asyncio.sleep(0)
                yields_at = perf_counter() + MAX_SECONDS
            row = PartitionProduceResponse(index=asked.index, record_errors=_NO_ERRORS)
            rows.append(row)
            partition: Partition | None = None
            try:
                partition = context.kafka.partitions.opened(topic.name, topic.topic_id, asked.index)
                if partition is None:
                    if not is_single and (ahead := context.kafka.partitions.ahead) is not None:
                        ahead.want_all(_rest(request, topic), context.access)
                    partition = await find_partition(context, topic.name, topic.topic_id, asked.index)
                if encrypted and partition.topic.name.namespace_name in encrypted:
                    raise EncryptionRequired(f"Encryption is required in {partition.topic.kafka_name}")
                if is_migration or partition.topic.config.is_migrating:
                    from magnetar.kafka.handlers.taking_over import take_over  # few brokers ever do it

                    row.base_offset, done = await take_over(transactional_id, partition, asked)
                    row.log_start_offset = partition.log.log_start_offset
                    if done is not None:
                        waiting.setdefault(done, []).append(row)
                    continue
                draft = partition.check(_records(asked, partition, context.api_version))
                if not isinstance(draft, PreparedBatch):
                    draft = await draft
                if draft.header.attributes & TRANSACTIONAL:
                    await _admit(transactional_id, partition, draft, context)
                produced = partition.produce(draft)
            except Exception as error:
                _fail(row, error, partition)
                if isinstance(error, LedgerError | NotOwned) and (partition is None or partition.closed):
                    _note_refused(context, topic, asked)
                failed += 1
                if partition is not None:
                    partition.figures.produces += 1
                if failed > _MAX_EXPLAINED:
                    row.error_message = None
                if row.error_code in TELLS_LEADER:
                    misled.append(Misled(topic.name, topic.topic_id, asked.index, row))
                elif failed > _MAX_EXPLAINED and partition is None:  # then no two of them differ but in this
                    rows[-1] = unexplained.setdefault((row.index, row.error_code), row)
                continue
            row.base_offset, row.log_append_time_ms, done = produced
            row.log_start_offset = partition.log.log_start_offset
            if done is not None:
                waiting.setdefault(done, []).append(row)
        topics.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)
        )
    context.placed = True
    context.placed_s = perf_counter()
    for done, rows in waiting.items():
        try:
            await done
        except Exception as error:
            failed += 1
            for row in rows:
                _fail(row, error)
    if failed:
        await _count_failed(topics, context)
    if request.acks:
        response = ProduceResponse(responses=topics)
        if misled and context.api_version >= _FIRST_WITH_LEADERS:
            response.node_endpoints = await tell_leaders(context, misled, LeaderIdAndEpoch, NodeEndpoint)
        return response
    if failed:
        _check_unanswered(topics)
    return None


def _rest(request: ProduceRequest, topic: TopicProduceData) -> Iterator[tuple[str, bytes, int]]:
    """Return the partitions of a request, the lists of which are being emptied from behind, that are still to come."""
    for each in (topic, *reversed(request.topic_data[-WANTED_OF_A_REQUEST:])):
        for asked in reversed(each.partition_data[-WANTED_OF_A_REQUEST:]):
            yield each.name, each.topic_id, asked.index


def _records(asked: PartitionProduceData, partition: Partition, version: int) -> memoryview:
    if partition.topic.internal:
        raise InternalTopic(f"Cannot append to internal topic {partition.topic.kafka_name}")
    records = asked.records
    if records is None or len(records) <= ATTRIBUTES_LOW:
        raise InvalidRecord("a partition without a whole record batch")
    records = memoryview(records)
    attributes = records[ATTRIBUTES_LOW]
    if attributes & 0x07 == _ZSTD and version < _FIRST_WITH_ZSTD:
        raise UnsupportedCompression("zstd needs version 7 of Produce")
    return records


async def _admit(
    transactional_id: str | None, partition: Partition, draft: PreparedBatch, context: RequestContext
) -> None:
    """See that a batch is of a transaction under way before it goes in; newer clients add its partition so (KIP-890).

    Nothing is awaited between the last look and the append, so that no marker comes in between.
    """
    header = draft.header
    if transactional_id is None:
        raise NoTransactionalId("a transactional batch without a transactional id")
    if partition.producers.has_open(header.producer_id, header.producer_epoch):
        return
    await partition.may_end_transactions()
    from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
    from magnetar.kafka.transactions.metadata import TransactionPartition

    version = context.api_version
    producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
    where = TransactionPartition(partition.topic.kafka_name, partition.index)
    admission = await context.kafka.transactions.admission()
    try:
        code = await admission.admit(
            transactional_id, producer, where, EPOCH_BUMPED, adds=version >= _FIRST_THAT_ADDS
        )
    except CoordinatorRefused as refused:
        raise CoordinatorRefused(
            OF_BATCHES.get(refused.code, refused.code),
            f"Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {refused.code.name}",
        ) from None
    if code is not ErrorCode.NONE:
        knows = version >= _FIRST_WITH_ABORTABLE
        raise CoordinatorRefused(
            code if knows else ErrorCode.INVALID_TXN_STATE, "the partition is not in the transaction"
        )


_OWN_CODES: dict[type[BaseException], ErrorCode] = {
    InternalTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    EncryptionRequired: ErrorCode.POLICY_VIOLATION,
    NoTransactionalId: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


_EXPECTED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
}
"""What Kafka does not count as a failure: the client is told, and does something about it."""


def _fail(row: PartitionProduceResponse, error: BaseException, partition: Partition | None = None) -> None:
    row.error_code = (
        error.code
        if isinstance(error, CoordinatorRefused)
        else _OWN_CODES.get(type(error)) or code_for(error)
    )
    row.error_message = str(error)
    row.base_offset = row.log_append_time_ms = row.log_start_offset = -1
    # Where the log starts Kafka tells with these errors only.
    if isinstance(error, RecordsRejected | ProducerRefused) and partition is not None:
        row.log_start_offset = partition.log.log_start_offset
    if isinstance(error, RecordsRejected):
        row.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why)
            for number, why in error.records
        ]


async def _count_failed(topics: list[TopicProduceResponse], context: RequestContext) -> None:
    partitions, errors = context.kafka.partitions, context.kafka.requests[ProduceRequest.API_KEY].errors
    async for topic, row in paced((each, row) for each in topics for row in each.partition_responses):
        if row.error_code:
            errors[row.error_code] += 1
            partition = partitions.opened(topic.name, topic.topic_id, row.index)
            if partition is not None and row.error_code not in _EXPECTED:
                partition.figures.failed_produces += 1


def _note_refused(context: RequestContext, topic: TopicProduceData, asked: PartitionProduceData) -> None:
    """Have a batch that found its partition closed be due when that is open again, before those sent behind it."""
    with suppress(RecordsError, TopicNotFound):
        found = find_topic(context, topic.name, topic.topic_id)
        batch = read_header(memoryview(asked.records or b""))
        context.kafka.partitions.due_batches.refused(found.topic_id, asked.index, batch)


def _check_unanswered(topics: list[TopicProduceResponse]) -> None:
    """A client that wants no answer learns of errors by losing its connection, as from Kafka."""
    for topic in topics:
        for row in topic.partition_responses:
            if row.error_code:
                raise ConnectionAbortedError(
                    f"acks=0, and {topic.name}-{row.index} failed: {row.error_message}"
                )


def _refused(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
