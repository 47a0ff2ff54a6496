"""Requests with very many rows: whoever sends them waits for the answer, and nobody else; all of it is answered."""

from __future__ import annotations

import asyncio
import select
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from magnetar.base.collector import Collector
from magnetar.client.errors import BrokerUnreachable
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.rows import PartitionRows
from magnetar.proxy.kafka.apart import Apart
from magnetar.proxy.kafka.producing import with_few_rows
from magnetar.proxy.kafka.request import ProxiedRequest, framed
from magnetar.proxy.kafka.spreading import cut_partitions
from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.records.batch import batches as batches_in
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_response_header,
)
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import ApiKey, response_class
from magnetar.wire.kafka.messages import share_fetch_request as sharing
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from magnetar.wire.kafka.primitives import MAX_REQUEST_ELEMENTS
from tests.hostile.client import Wire, fetch, frame, request_bytes
from tests.proxy.processes import ProxyProcess
from tests.proxy.test_kafka import PARTITIONS, make
from tests.proxy.test_producing import World, codes
from tests.turns import IN_TIME

MANY = 100_000
PART_OF_ALL = 10
"""A step takes less than this part of what all of it takes at once."""
TRIES = 3
"""Others of the machine make a step longer now and then, hardly thrice; what is too much at once is it always."""
VERSION = 9
MIN_BETWEEN = 5


class Steps:
    """The processor's time that the event loop's steps take, in seconds: others wait for each of them."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Steps:
        run: Callable[[asyncio.Handle], None] = asyncio.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            if asyncio.Handle._run is counted:  # else the test has gone on in that step
                self.longest_s = max(self.longest_s, time.thread_time() - began)

        self._patch.setattr(asyncio.Handle, "_run", counted)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


class Broker:
    """Stands for a connection: keeps what it is asked as it comes."""

    def __init__(self) -> None:
        self.frame: memoryview | None = None
        self.told: Any = None

    def forward(self, frame: memoryview, told: Any, *, within_s: float) -> None:
        self.frame, self.told = frame, told

    @property
    def rows(self) -> list[int]:
        assert self.frame is not None
        _, body = decode_request_header(self.frame)
        (topic,) = ProduceRequest.decode(body, VERSION).topic_data
        return [each.index for each in topic.partition_data]

    def answer(self, code: int) -> memoryview:
        rows = [PartitionProduceResponse(index=index, error_code=code) for index in self.rows]
        answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=rows)])
        return memoryview(encode_response_header(0, VERSION, 0) + answer.encode(VERSION))


@pytest.fixture
def collector() -> Iterator[None]:
    """Python's own would look through all that tests have ever imported; a proxy has one like this."""
    made = Collector()
    yield
    made.stop()


def asked(rows: int, records: bytes = b"") -> ProduceRequest:
    """Return so many batches of two partitions."""
    data = [PartitionProduceData(index=n % 2, records=records) for n in range(rows)]
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])


def at_once_s(frame: memoryview) -> float:
    """Return what it takes to read such a request, to cut it and to write it down, without a pause."""
    began = time.thread_time()
    header, body = decode_request_header(frame)
    rows = ROUTE_BY_KEY[ApiKey.PRODUCE].asked
    assert isinstance(rows, PartitionRows)
    for part in cut_partitions(
        rows, ProduceRequest.decode(body, VERSION), lambda topic, index: index
    ).values():
        framed(header, part)
    return time.thread_time() - began


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("stored", ErrorCode.NONE),
        ("refused", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("broken", ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_no_step_of_a_produce_takes_more_than_a_part_of_it(end: str, code: ErrorCode) -> None:
    assert min([await longest_part_of_a_produce(end, code) for _ in range(TRIES)]) < 1 / PART_OF_ALL


async def longest_part_of_a_produce(end: str, code: ErrorCode) -> float:
    """Have very many batches of two partitions end so, and return the longest step's part of what all takes at once."""
    world = World()
    brokers = {0: Broker(), 1: Broker()}
    world.brokers = brokers  # type: ignore[assignment]
    header = RequestHeader(0, VERSION, 5, "me")
    frame = framed(header, asked(MANY))
    _, body = decode_request_header(frame)
    assert with_few_rows(header, body) is None
    all_s = at_once_s(frame)
    request = ProxiedRequest(header, len(frame), 0.0)
    with Steps() as before:
        task = asyncio.ensure_future(world.batches.run(request, frame, body, None))
        while not request.placed:  # noqa: ASYNC110 - as the machine of `KafkaServing` does, which has turns of its own
            await asyncio.sleep(0.001)
    for number, each in brokers.items():
        assert each.rows == [number] * (MANY // 2)
    answers = [each.answer(code) for each in brokers.values()]
    with Steps() as after:
        for each, answer in zip(brokers.values(), answers, strict=True):
            if end == "broken":
                each.told(None, BrokerUnreachable("it broke"))
            else:
                each.told(answer, None)
        await task
    assert request.parts is not None
    assert len(request.parts) == 2, "in one piece, and not in as many as there are rows"
    assert codes(request) == {0: code, 1: code}
    return max(before.longest_s, after.longest_s) / all_s


async def test_what_was_made_in_a_thread_is_let_go_of_in_one() -> None:
    with Apart() as apart:
        few = await apart.do(False, asked, 2000)
        (rows,) = [each.partition_data for each in few.topic_data]
        made, _ = await apart.do(True, lambda: (asked(2000), {1: asked(2000)}))
        (many,) = [each.partition_data for each in made.topic_data]
        assert len(many) == 2000
    for _ in range(IN_TIME):
        if not many:
            break
        await asyncio.sleep(0.001)
    assert (len(many), len(rows)) == (0, 2000)


@pytest.fixture(scope="module")
def topic(proxy: ProxyProcess) -> str:
    name = f"many-{uuid.uuid4().hex[:8]}"
    make(AdminClient({"bootstrap.servers": proxy.kafka}), name)
    return name


@pytest.fixture
def wire(proxy: ProxyProcess) -> Iterator[Wire]:
    with connected(proxy) as made:
        yield made


def connected(proxy: ProxyProcess) -> Wire:
    host, _, port = proxy.kafka.rpartition(":")
    return Wire((host, int(port)))


def test_batches_of_a_request_with_many_rows_are_stored_in_their_order(wire: Wire, topic: str) -> None:
    rows = 100 * PARTITIONS
    batches = [encode_batch([PlainRecord(None, b"%d" % n, timestamp=0)]) for n in range(rows)]
    data = [PartitionProduceData(index=n % PARTITIONS, records=each) for n, each in enumerate(batches)]
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    told = [
        (row.index, row.error_code, row.base_offset)
        for each in wire.ask(request, VERSION).responses
        for row in each.partition_responses
    ]
    assert sorted(told) == [(n, 0, offset) for n in range(PARTITIONS) for offset in range(100)]
    for n in range(PARTITIONS):
        records = fetch(wire, topic, 0, partition=n).records
        values = [each.value for _, batch in batches_in(records) for each in decode_records(batch)]
        assert values == [b"%d" % each for each in range(n, rows, PARTITIONS)]


def produce(topic: str) -> tuple[Message, int]:
    data = [PartitionProduceData(index=n % PARTITIONS, records=b"") for n in range(MANY)]
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=data)]), VERSION


def fetched(topic: str) -> tuple[Message, int]:
    rows = [FetchPartition(partition=n) for n in range(MANY)]
    return FetchRequest(session_epoch=-1, topics=[FetchTopic(topic=topic, partitions=rows)]), 12


def offsets(topic: str) -> tuple[Message, int]:
    rows = [ListOffsetsPartition(partition_index=n % PARTITIONS, timestamp=-1) for n in range(MANY)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=rows)]), 7


def unknown(topic: str) -> tuple[Message, int]:
    rows = [MetadataRequestTopic(name=f"{topic}-{n}") for n in range(MANY)]
    return MetadataRequest(topics=rows, allow_auto_topic_creation=False), 12


def committed(topic: str) -> tuple[Message, int]:
    rows = [OffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in range(MANY)]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=rows)]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics), 8


def groups(topic: str) -> tuple[Message, int]:
    return DescribeGroupsRequest(groups=[f"{topic}-{n}" for n in range(MANY // 5)]), 5


def rows_of(answer: Any) -> int:
    """Return how many rows an answer has at its lowest level."""
    lists = [getattr(answer, name) for name in answer.__slots__ if type(getattr(answer, name)) is list]
    rows = [each for some in lists for each in some if hasattr(each, "__slots__")]
    return sum(max(rows_of(each), 1) for each in rows)


@pytest.mark.parametrize(
    ("asks", "rows"),
    [
        (produce, MANY),
        (fetched, MANY),
        (offsets, MANY),
        (unknown, MANY + 1),  # and one broker
        (committed, MANY),
        (groups, MANY // 5),
    ],
)
def test_others_are_answered_meanwhile(
    proxy: ProxyProcess, wire: Wire, topic: str, asks: Callable[[str], tuple[Message, int]], rows: int
) -> None:
    message, version = asks(topic)
    with connected(proxy) as other:
        wire.send(frame(request_bytes(message, version)))
        between = 0
        while not select.select([wire.socket], [], [], 0)[0]:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
            between += 1
    _, body = decode_response_header(wire.frame(), message.API_KEY, version)
    answer = response_class(message.API_KEY).decode(body, version)
    assert rows_of(answer) == rows
    assert between >= MIN_BETWEEN


def test_more_rows_than_a_share_session_follows_are_refused(wire: Wire) -> None:
    rows = [sharing.FetchPartition(partition_index=n) for n in range(MANY)]
    request = sharing.ShareFetchRequest(
        group_id="g", member_id="m", topics=[sharing.FetchTopic(topic_id=bytes(16), partitions=rows)]
    )
    assert wire.ask(request).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_request_with_more_rows_than_any_has_ends_its_connection(wire: Wire, topic: str) -> None:
    data = [PartitionProduceData(index=0, records=b"")] * (MAX_REQUEST_ELEMENTS + 1)
    wire.send(
        frame(
            request_bytes(
                ProduceRequest(topic_data=[TopicProduceData(name=topic, partition_data=data)]), VERSION
            )
        )
    )
    assert wire.is_closed()


def test_who_leaves_amid_its_many_rows_harms_nobody(proxy: ProxyProcess, wire: Wire, topic: str) -> None:
    for asks in (produce, fetched, offsets, groups):
        message, version = asks(topic)
        with connected(proxy) as leaver:
            leaver.send(frame(request_bytes(message, version)))
    assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
