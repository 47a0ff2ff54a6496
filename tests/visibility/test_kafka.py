"""No API of Kafka's tells, gives or uses an offset past what is durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.groups import describe_group
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.watermarks import ask_broker
from magnetar.records.batch import PlainRecord, batches, decode_records, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.visibility.conftest import TOPIC, House, KafkaClient, soon

FETCH_VERSION, PRODUCE_VERSION = 12, 9
DURABLE, WRITTEN = 3, 5
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def produce(*timestamps: int, acks: int = -1, **producer: int) -> ProduceRequest:
    """Return a request with one batch of as many records, each named by its timestamp (ms)."""
    records = [PlainRecord(b"k", b"%d" % each, (), each) for each in timestamps]
    row = PartitionProduceData(index=0, records=encode_batch(records, **producer))
    return ProduceRequest(
        acks=acks, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[row])]
    )


def fetch(offset: int, *, wait_ms: int = 0, session: tuple[int, int] = (0, -1), **asked: int) -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **asked)
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session[0], session_epoch=session[1],
        topics=[FetchTopic(topic=TOPIC, partitions=[row])],
    )  # fmt: skip


def first_row(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def values(row: Any) -> list[bytes | None]:
    return [each.value for _, batch in batches(row.records or b"") for each in decode_records(batch)]


class Asking:
    """A consumer beside a producer whose last batch waits for the disk."""

    def __init__(self, house: House, client: KafkaClient, acknowledged: asyncio.Task[Any]) -> None:
        self.house, self.client, self.acknowledged = house, client, acknowledged

    async def fetch(self, offset: int, **how: Any) -> Any:
        return first_row(await soon(self.client.ask(fetch(offset, **how), FETCH_VERSION)))

    async def offset_of(self, timestamp: int) -> tuple[int, int]:
        """Return what ListOffsets says: offset and timestamp."""
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
        row = (await soon(self.client.ask(request))).topics[0].partitions[0]
        assert row.error_code == 0
        return row.offset, row.timestamp

    async def delete_before(self, offset: int) -> Any:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[asked])], timeout_ms=1000
        )
        return (await soon(self.client.ask(request))).topics[0].partitions[0]

    async def becomes_durable(self) -> None:
        assert not self.acknowledged.done(), "acknowledged before it was durable"
        self.house.disk.let_go()
        row = (await soon(self.acknowledged)).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, DURABLE)


@pytest.fixture
async def asking(house: House) -> AsyncIterator[Asking]:
    """Three records are durable, two more are written and wait for the disk."""
    producer = await house.kafka()
    await soon(producer.ask(produce(1000, 2000, 3000), PRODUCE_VERSION))
    house.disk.hold()
    acknowledged = producer.ask(produce(4000, 5000), PRODUCE_VERSION)
    log = await house.written_to(WRITTEN)
    assert log.high_watermark == DURABLE
    found = Asking(house, await house.kafka(), acknowledged)
    yield found
    assert log.high_watermark == (WRITTEN if acknowledged.done() else DURABLE)


@pytest.mark.parametrize(("version", "is_told"), [(1, False), (3, False), (4, True), (6, True)])
async def test_a_leader_epoch_comes_with_offsets_from_version_4_on(
    asking: Asking, version: int, is_told: bool
) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
    row = (await soon(asking.client.ask(request, version))).topics[0].partitions[0]
    assert (row.offset, row.leader_epoch >= 0) == (0, is_told)


async def test_a_fetch_that_failed_is_counted_as_such(asking: Asking) -> None:
    services = next(
        each for each in asking.house.service.handlers if isinstance(each, KafkaProtocolHandler)
    ).services
    for count in (1, 2):
        row = await asking.fetch(WRITTEN + 1)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert services.requests[FetchRequest.API_KEY].errors[ErrorCode.OFFSET_OUT_OF_RANGE] == count


async def test_fetch_tells_and_gives_what_is_durable(asking: Asking) -> None:
    row = await asking.fetch(0)
    assert (row.high_watermark, row.last_stable_offset) == (DURABLE, DURABLE)
    assert values(row) == [b"1000", b"2000", b"3000"]
    row = await asking.fetch(DURABLE)  # nothing to read: told from elsewhere
    assert (row.high_watermark, row.last_stable_offset, values(row)) == (DURABLE, DURABLE, [])
    await asking.becomes_durable()
    row = await asking.fetch(DURABLE)
    assert (row.high_watermark, row.last_stable_offset) == (WRITTEN, WRITTEN)
    assert values(row) == [b"4000", b"5000"]


async def test_fetch_between_durable_and_written_is_no_error_and_gives_nothing(asking: Asking) -> None:
    row = await asking.fetch(DURABLE + 1)
    assert (row.error_code, row.high_watermark, values(row)) == (0, DURABLE, [])
    assert (await asking.fetch(WRITTEN + 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_parked_fetch_is_answered_when_the_disk_has_it(asking: Asking) -> None:
    parked = asking.client.ask(fetch(DURABLE, wait_ms=200_000), FETCH_VERSION)
    other = await asking.house.kafka()
    await soon(other.ask(fetch(0), FETCH_VERSION))  # by now the other one is parked
    assert not parked.done()
    await asking.becomes_durable()
    row = first_row(await soon(parked))
    assert (row.high_watermark, values(row)) == (WRITTEN, [b"4000", b"5000"])


async def test_a_fetch_session_has_news_when_they_are_durable(asking: Asking) -> None:
    client = asking.client
    first = await soon(client.ask(fetch(DURABLE, session=(0, 0)), FETCH_VERSION))
    assert (first_row(first).high_watermark, values(first_row(first))) == (DURABLE, [])
    again = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=first.session_id, session_epoch=1, topics=[]
    )
    assert (await soon(client.ask(again, FETCH_VERSION))).responses == []
    await asking.becomes_durable()
    again.session_epoch = 2
    row = first_row(await soon(client.ask(again, FETCH_VERSION)))
    assert (row.high_watermark, values(row)) == (WRITTEN, [b"4000", b"5000"])


async def test_a_diverging_epoch_ends_where_what_is_durable_does(asking: Asking) -> None:
    row = await asking.fetch(WRITTEN, last_fetched_epoch=0, current_leader_epoch=0)
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, DURABLE)
    row = await asking.fetch(DURABLE, last_fetched_epoch=0, current_leader_epoch=0)
    assert (row.error_code, row.diverging_epoch) == (0, None)
    row = await asking.fetch(DURABLE, last_fetched_epoch=7, current_leader_epoch=0)
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_list_offsets_never_exceeds_what_is_durable(asking: Asking) -> None:
    assert await asking.offset_of(LATEST) == (DURABLE, -1)
    assert await asking.offset_of(EARLIEST) == (0, -1)
    assert await asking.offset_of(3000) == (2, 3000)
    assert await asking.offset_of(3001) == (-1, -1)
    assert await asking.offset_of(MAX_TIMESTAMP) == (2, 3000)
    await asking.becomes_durable()
    assert await asking.offset_of(LATEST) == (WRITTEN, -1)
    assert await asking.offset_of(3001) == (3, 4000)
    assert await asking.offset_of(MAX_TIMESTAMP) == (4, 5000)


async def test_delete_records_goes_to_the_high_watermark_and_not_beyond(asking: Asking) -> None:
    for beyond in (DURABLE + 1, WRITTEN):
        refused = await asking.delete_before(beyond)
        assert (refused.error_code, refused.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await asking.offset_of(EARLIEST) == (0, -1)
    done = await asking.delete_before(-1)
    assert (done.error_code, done.low_watermark) == (0, DURABLE)
    assert await asking.offset_of(EARLIEST) == (DURABLE, -1)
    await asking.becomes_durable()
    assert values(await asking.fetch(DURABLE)) == [b"4000", b"5000"]


async def test_the_end_of_an_epoch_is_what_is_durable(asking: Asking) -> None:
    row = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[row])]
    )
    for due in (DURABLE, WRITTEN):
        answer = await soon(asking.client.ask(request))
        assert answer.topics[0].partitions[0].end_offset == due
        if due == DURABLE:
            await asking.becomes_durable()


async def test_an_idempotent_batch_is_acknowledged_twice_and_each_time_when_it_is_durable(
    house: House,
) -> None:
    """Whoever sends a batch again, over a new connection, must not hear sooner of it than who sent it first."""
    one, other = await house.kafka(), await house.kafka()
    answer = await soon(one.ask(InitProducerIdRequest(transactional_id=None), 4))
    ids = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
    await soon(one.ask(produce(1000, base_sequence=0, **ids), PRODUCE_VERSION))
    house.disk.hold()
    first = one.ask(produce(2000, base_sequence=1, **ids), PRODUCE_VERSION)
    log = await house.written_to(2)
    again = other.ask(produce(2000, base_sequence=1, **ids), PRODUCE_VERSION)
    durable_one = (await house.kafka()).ask(produce(1000, base_sequence=0, **ids), PRODUCE_VERSION)
    row = (await soon(durable_one)).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (0, 0), "this one need not wait"
    assert not first.done()
    assert not again.done(), "acknowledged before the first one was durable"
    house.disk.let_go()
    for answer in (await soon(first), await soon(again)):
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 1)
    assert log.log_end_offset == log.high_watermark == 2


async def test_a_groups_lag_counts_what_is_durable(house: House) -> None:
    client = await house.kafka()
    await soon(client.ask(produce(1000, 2000, 3000), PRODUCE_VERSION))
    done = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[done])]
    )
    await soon(client.ask(commit, 8))
    house.disk.hold()
    late = client.ask(produce(4000, 5000), PRODUCE_VERSION)
    await house.written_to(WRITTEN)
    assert await asyncio.to_thread(lag, house.kafka_address) == DURABLE - 1
    house.disk.let_go()
    await soon(late)
    assert await asyncio.to_thread(lag, house.kafka_address) == WRITTEN - 1


def lag(address: str) -> int:
    """Return what the command line says of the group."""
    with ClusterAdmin(address) as cluster:
        return describe_group(cluster, "g").total_lag


async def test_sparks_driver_reads_as_far_as_is_durable(asking: Asking) -> None:
    which = TopicPartition(TOPIC, 0)
    found = await asyncio.to_thread(ask_broker, asking.house.kafka_address, [which])
    assert (found[which].first, found[which].next) == (0, DURABLE)
    await asking.becomes_durable()
    found = await asyncio.to_thread(ask_broker, asking.house.kafka_address, [which])
    assert (found[which].first, found[which].next) == (0, WRITTEN)
