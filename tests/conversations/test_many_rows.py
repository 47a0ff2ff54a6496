"""A request with many rows: what it takes while it is carried out, without a clock."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.collector import uncollected
from magnetar.kafka import connection
from magnetar.kafka.answers import Answer
from magnetar.kafka.connection import APART_BYTES, ROWS_COST
from magnetar.kafka.handlers import produce as producing
from magnetar.kafka.handlers.delete_topics import delete_topics
from magnetar.kafka.handlers.leaders import Misled, tell_leaders
from magnetar.kafka.handlers.leave_group import leave_group
from magnetar.node.service import BrokerService
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.serving import pace
from magnetar.topics.new_topic import NewTopic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import LeaderIdAndEpoch, NodeEndpoint
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse
from tests.hostile.client import frame, request_bytes
from tests.hostile.test_fuzz import Peer, broker, kafka

ROWS = 5000


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with broker(tmp_path / "data") as service:
        yield service


async def answered(peer: Peer) -> None:
    while not peer.answers:  # noqa: ASYNC110 - what it looks at tells nobody
        await asyncio.sleep(0)


def fetch(rows: int) -> bytes:
    partitions = [FetchPartition(partition=each) for each in range(rows)]
    request = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic="none", partitions=partitions)])
    return frame(request_bytes(request, 11))


def produce(rows: int) -> bytes:
    batch = encode_batch([PlainRecord(None, b"x", [], 0, 0)])
    data = [PartitionProduceData(index=each, records=batch) for each in range(rows)]
    topic = TopicProduceData(name="none", partition_data=data)
    return frame(request_bytes(ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic]), 9))


async def test_no_garbage_is_looked_for_and_what_rows_take_is_counted(service: BrokerService) -> None:
    for content in (fetch(ROWS), produce(ROWS)):
        assert len(content) > APART_BYTES
        peer = Peer(kafka(service), service)
        full: list[Any] = []
        gc.collect()  # so that none is due by what other tests left
        gc.callbacks.append(lambda phase, info, full=full: full.append(info["generation"]))
        peer.say(content)
        assert not peer.answers, "it is read in a thread"
        assert peer.account.held_bytes > (len(content) - 4) * (ROWS_COST - 1)
        await asyncio.sleep(0)
        assert not gc.isenabled()
        await answered(peer)
        gc.callbacks.pop()
        assert 2 not in full
        assert gc.isenabled()
        assert peer.account.held_bytes == 0


async def test_produce_of_large_batches_is_read_at_once(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rows cost: a thread would only delay it."""
    monkeypatch.setattr(connection.KafkaConnection, "_serve_large", None)
    batch = encode_batch([PlainRecord(None, bytes(2 * APART_BYTES), [], 0, 0)])
    topic = TopicProduceData(name="none", partition_data=[PartitionProduceData(index=0, records=batch)])
    peer = Peer(kafka(service), service)
    peer.say(frame(request_bytes(ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic]), 9)))
    await answered(peer)


async def test_many_rows_wait_while_others_hold_all(service: BrokerService) -> None:
    peer = Peer(kafka(service), service)
    budget = peer.account.budget
    greedy = budget.account(lambda: None, known=True)
    greedy.charge(2 * budget.limit_bytes)
    greedy.may_take_more()  # it is what is being finished
    peer.say(fetch(ROWS))
    assert peer.conversation.under_way == 0
    greedy.close()
    peer.conversation.go_on()
    await answered(peer)


def test_the_collector_comes_back_when_the_last_is_done() -> None:
    assert gc.isenabled()
    with uncollected():
        with pytest.raises(ZeroDivisionError), uncollected():
            raise ZeroDivisionError
        assert not gc.isenabled()
    assert gc.isenabled()


async def test_a_request_has_no_more_rows_than_the_bound(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_REQUEST_ELEMENTS", ROWS + 1)  # the topic is one
    peer = Peer(kafka(service), service)
    peer.say(fetch(ROWS))
    await answered(peer)
    assert not peer.ended
    peer.say(fetch(ROWS + 1))
    while not peer.ended:  # noqa: ASYNC110 - it closes without a word
        await asyncio.sleep(0)
    assert peer.account.held_bytes == 0


async def test_of_very_many_failures_the_first_are_told_in_words(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each row takes, 300,000 times: 196 MB."""
    monkeypatch.setattr(producing, "_MAX_EXPLAINED", 3)
    data = [PartitionProduceData(index=each % 10, records=b"") for each in range(30)]
    topic = TopicProduceData(name="none", partition_data=data)
    request = ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic])
    peer = Peer(kafka(service), service)
    peer.say(frame(request_bytes(request, 9)))
    await answered(peer)
    _, body = decode_response_header(memoryview(peer.answers[0])[4:], 0, 9)
    rows = ProduceResponse.decode(body, 9).responses[0].partition_responses
    assert [row.index for row in rows] == [each % 10 for each in range(30)]
    assert {row.error_code for row in rows} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [row.error_message is None for row in rows] == [each >= 3 for each in range(30)]


async def test_a_coordinator_decides_about_few_members_at_a_time() -> None:
    """100,000 members that left a group they were never in held up everybody for 0.2 s."""
    sizes: list[int] = []

    class Groups:
        async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
            sizes.append(len(request.members))
            return LeaveGroupResponse(
                members=[MemberResponse(member_id=each.member_id) for each in request.members]
            )

    members = [MemberIdentity(member_id=f"m{number}") for number in range(2500)]
    context: Any = SimpleNamespace(api_version=5, kafka=SimpleNamespace(groups=Groups()))
    turns = 0
    asked = asyncio.ensure_future(leave_group(LeaveGroupRequest(group_id="g", members=members), context))
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert [each.member_id for each in asked.result().members] == [each.member_id for each in members]
    assert sizes == [1000, 1000, 500]
    assert turns >= 3
    assert (await leave_group(LeaveGroupRequest(group_id="g"), context)).members == []
    assert sizes[3:] == [0], "who names nobody still hears what is wrong with the group"


async def test_names_to_delete_are_looked_at_a_few_at_a_time(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MAX_SECONDS", -1.0)
    context: Any = SimpleNamespace(kafka=kafka(service).services, api_version=6)
    request = DeleteTopicsRequest(topic_names=[f"none{number}" for number in range(40)], timeout_ms=9)
    asked, turns = asyncio.ensure_future(delete_topics(request, context)), 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(asked.result().responses) == 40
    assert turns > 100, "each name is gone through three times"


class SlowClock:
    """Each look at it takes half a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.0005
        return self.now


async def turns_until_answered(peer: Peer) -> int:
    """Return how many turns others have until then."""
    turns = 0
    while not peer.answers:
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_rows_leave_others_their_turn_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "perf_counter", SlowClock())
    turns, found = 0, []

    async def work() -> None:
        async for row in pace.paced(range(200)):
            found.append(row)

    task = asyncio.ensure_future(work())
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert found == list(range(200))
    assert 10 < turns < 100


async def test_produces_rows_leave_others_their_turn_by_time(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(kafka(service), service)
    peer.say(produce(200))
    at_once = await turns_until_answered(peer)
    peer.answers.clear()
    monkeypatch.setattr(producing, "perf_counter", SlowClock())
    peer.say(produce(200))
    assert await turns_until_answered(peer) > at_once + 10


async def test_rows_that_failed_are_counted_in_many_turns(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(kafka(service), service)
    peer.say(produce(200))
    at_once = await turns_until_answered(peer)
    peer.answers.clear()
    errors = kafka(service).services.requests[ProduceRequest.API_KEY].errors
    before = errors[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    monkeypatch.setattr(pace, "perf_counter", SlowClock())
    peer.say(produce(200))
    assert await turns_until_answered(peer) > at_once + 10
    assert errors[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == before + 200


async def test_many_who_are_told_of_leaders_are_told_in_many_turns(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.broker.create_topics([NewTopic(service.broker.naming.parse("led"), 1)])
    monkeypatch.setattr(pace, "perf_counter", SlowClock())
    context: Any = SimpleNamespace(kafka=kafka(service).services, listener=service.listeners["kafka"][0])
    rows = [SimpleNamespace(current_leader=None) for _ in range(200)]
    misled = [Misled("led", bytes(16), 0, row) for row in rows]
    told, turns = asyncio.ensure_future(tell_leaders(context, misled, LeaderIdAndEpoch, NodeEndpoint)), 0
    while not told.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    (node,) = told.result()
    assert {row.current_leader.leader_id for row in rows} == {node.node_id}


async def test_a_fetch_of_many_rows_goes_through_them_in_stretches(service: BrokerService) -> None:
    """Where each partition ends was looked up for all of them at one stretch, 15 ms for 249,000."""
    peer = Peer(kafka(service), service)
    peer.say(fetch(20 * 256))
    assert await turns_until_answered(peer) >= 5 * 20, "asked for, found, ends, read, answered"


async def test_what_is_read_in_a_thread_for_one_who_has_gone_is_not_carried_out(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []
    serve = connection.KafkaConnection._serve

    def noted(self: Any, answer: Any, context: Any, route: Any, *args: Any, **named: Any) -> None:
        served.append(route.handler)
        serve(self, answer, context, route, *args, **named)

    monkeypatch.setattr(connection.KafkaConnection, "_serve", noted)
    for content, handlers in ((fetch(ROWS), []), (produce(ROWS), ["produce"])):
        peer = Peer(kafka(service), service)
        peer.say(content)
        while not peer.conversation.under_way:  # noqa: ASYNC110 - the turn may have been used up by others
            await asyncio.sleep(0)
        peer.conversation.hang_up()
        while not peer.ended:  # noqa: ASYNC110 - what it looks at tells nobody
            await asyncio.sleep(0)
        assert served == handlers
        assert peer.account.held_bytes == 0
        served.clear()


async def test_while_rows_are_carried_out_no_garbage_is_looked_for(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    serve = connection.KafkaConnection._serve

    def noted(self: Any, *args: Any, **named: Any) -> None:
        serve(self, *args, **named)
        seen.append(gc.isenabled())

    monkeypatch.setattr(connection.KafkaConnection, "_serve", noted)
    monkeypatch.setattr(producing, "perf_counter", SlowClock())
    peer = Peer(kafka(service), service)
    peer.say(produce(ROWS))
    while not seen:  # noqa: ASYNC110 - what it looks at tells nobody
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    seen.clear()
    while not peer.answers:
        seen.append(gc.isenabled())
        await asyncio.sleep(0)
    assert len(seen) > 50
    assert not any(seen[:-2]), "when all is done the answer is sent in one of the next turns"
    assert gc.isenabled()


async def test_what_all_clients_are_told_of_is_not_let_go_of_with_an_answer(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection, "MAX_SECONDS", -1.0
    )  # so that a thread writes the answer down, and lets it go
    name = service.broker.naming.parse("wide")
    await service.broker.create_topics([NewTopic(name, pace.MANY_ROWS)])
    for _ in range(2):
        peer = Peer(kafka(service), service)
        peer.say(frame(request_bytes(MetadataRequest(topics=None), 12)))
        await answered(peer)
        _, body = decode_response_header(memoryview(peer.answers[0])[4:], 3, 12)
        told = {topic.name: len(topic.partitions) for topic in MetadataResponse.decode(body, 12).topics}
        assert told["wide"] == pace.MANY_ROWS


async def test_rows_of_a_large_topic_are_made_in_many_turns_and_written_down_in_a_thread(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 partitions held up everybody for 25 ms when they were first asked for, and each time by being written."""
    apart: list[Any] = []
    encoded_apart = Answer.encoded_apart

    async def noted(self: Answer, response: Any) -> bytes:
        apart.append(response)
        return await encoded_apart(self, response)

    monkeypatch.setattr(Answer, "encoded_apart", noted)
    partitions = 2 * pace.MANY_ROWS + 7
    await service.broker.create_topics([NewTopic(service.broker.naming.parse("wide"), partitions)])
    question = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
    for times in range(1, 3):
        peer, collects = Peer(kafka(service), service), list[bool]()
        with monkeypatch.context() as patch:
            patch.setattr(pace, "perf_counter", SlowClock())
            peer.say(frame(request_bytes(question, 12)))
            while len(apart) < times:
                collects.append(gc.isenabled())
                await asyncio.sleep(0)
        await answered(peer)
        assert (len(collects) > 100) == (times == 1)
        assert times > 1 or collects.count(False) > 100, "rows are no garbage"
        _, body = decode_response_header(memoryview(peer.answers[0])[4:], 3, 12)
        (topic,) = MetadataResponse.decode(body, 12).topics
        assert [row.partition_index for row in topic.partitions] == list(range(partitions))
    assert gc.isenabled()


async def test_an_answer_of_few_rows_is_written_down_at_once_however_long_it_took(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread must be had first: beside a busy loop answers of a few rows waited for one for 0.4 s."""
    apart: list[str] = []
    encoded_apart = Answer.encoded_apart

    async def noted(self: Answer, response: Any) -> bytes:
        apart.append(type(response).__name__)
        return await encoded_apart(self, response)

    monkeypatch.setattr(Answer, "encoded_apart", noted)
    monkeypatch.setattr(connection, "MAX_SECONDS", -1.0)  # all take long
    peer = Peer(kafka(service), service)
    peer.say(frame(request_bytes(ApiVersionsRequest(), 3)))
    peer.say(frame(request_bytes(MetadataRequest(topics=[]), 12)))
    while len(peer.answers) < 2:  # noqa: ASYNC110 - it takes a few turns
        await asyncio.sleep(0)
    assert apart == []
    await service.broker.create_topics([NewTopic(service.broker.naming.parse("wide"), pace.FEW_ROWS)])
    peer = Peer(kafka(service), service)
    peer.say(frame(request_bytes(MetadataRequest(topics=None), 12)))
    await answered(peer)
    assert apart == ["MetadataResponse"]


@pytest.mark.parametrize("rows", [pace.FEW_ROWS, pace.FEW_ROWS + 1])
def test_rows_within_rows_count(rows: int) -> None:
    inner = rows // 3
    topics = [MetadataResponseTopic(name="a", partitions=[MetadataResponsePartition()] * inner)] * 2
    brokers = [MetadataResponseBroker()] * (rows - 2 * inner - 2)
    assert pace.is_long(MetadataResponse(brokers=brokers, topics=topics)) is (rows > pace.FEW_ROWS)
    deep = MetadataResponsePartition(replica_nodes=[1] * (rows - 2))
    response = MetadataResponse(topics=[MetadataResponseTopic(name="a", partitions=[deep])])
    assert pace.is_long(response) is (rows > pace.FEW_ROWS)
    assert not pace.is_long(b"x" * 1000)
    assert not pace.is_long(None)


def offsets_of(*topics: OffsetFetchRequestTopics) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[*topics])])


@pytest.mark.parametrize(
    ("asked", "version", "times"),
    [
        (offsets_of(OffsetFetchRequestTopics(name="none", partition_indexes=[*range(ROWS)])), 9, 1),
        (
            offsets_of(
                *(OffsetFetchRequestTopics(name=f"none{n}", partition_indexes=[0]) for n in range(ROWS))
            ),
            9,
            2,  # a turn after each topic, and one after its row
        ),
        (
            OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="none", partition_indexes=[*range(ROWS)])]
            ),
            7,
            2,  # the old answer is made of the new one
        ),
    ],
    ids=["rows", "topics", "before there were groups"],
)
async def test_others_have_turns_while_many_offsets_of_one_group_are_told(
    service: BrokerService,
    monkeypatch: pytest.MonkeyPatch,
    asked: OffsetFetchRequest,
    version: int,
    times: int,
) -> None:
    monkeypatch.setattr(pace, "MAX_SECONDS", -1.0)  # a turn after each row
    peer = Peer(kafka(service), service)
    peer.say(frame(request_bytes(asked, version)))
    turns = 0
    while not peer.answers:
        await asyncio.sleep(0)
        turns += 1
    assert turns > times * ROWS


async def test_names_are_put_in_order_a_few_at_a_time() -> None:
    names = [f"n{n * 7919 % 10_007}" for n in range(10_007)]
    assert list(await pace.in_order(names)) == sorted(names)
    assert list(await pace.in_order([])) == []


async def test_the_first_of_each_and_which_come_again() -> None:
    rows = [("a", 1), ("b", 2), ("a", 3)]
    assert await pace.firsts(rows, lambda row: row[0]) == ({"a": rows[0], "b": rows[1]}, {"a"})
    assert list(pace.distinct(["b", "a", "b"])) == ["b", "a"]
