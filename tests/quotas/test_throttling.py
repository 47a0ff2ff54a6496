"""Whoever has used up what he may is answered at once, told how long to wait, and waits; nobody else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.kafka.quotas.managers import QuotaManagers
from magnetar.kafka.throttling import Timed, throttled
from magnetar.node.service import BrokerService
from magnetar.topics.client_quotas import DEFAULT, QuotaEntity
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.describe_quorum_request import DescribeQuorumRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from tests.hostile.client import frame, request_bytes
from tests.hostile.test_fuzz import Peer, broker, kafka
from tests.quotas.asking import fetch, produce

HOSTILE = QuotaEntity(client_id="hostile")
"""What requests of `request_bytes` call themselves."""
VERSIONS = {0: 12, 1: 12}


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes of threads, too."""
    while not holds():  # noqa: ASYNC110 - what it looks at tells nobody
        await asyncio.sleep(0.001)


class House:
    """A broker in this process, whose quotas go by a clock that tests move."""

    def __init__(self, service: BrokerService) -> None:
        self.service = service
        self.services = kafka(service).services
        self.now_s = 1000.0
        self.quotas: QuotaManagers = self.services.quotas.get()
        self.quotas.clock = lambda: self.now_s

    async def limit(self, entity: QuotaEntity, **quotas: float | None) -> None:
        await self.services.broker.client_quotas.alter({entity: quotas})

    def client(self) -> Client:
        return Client(self)


class Client:
    def __init__(self, house: House) -> None:
        self.peer = Peer(kafka(house.service), house.service)
        self._asked: list[tuple[int, int]] = []
        self._house = house
        self._waits: list[int] = []
        self._mute, self.peer.conversation.mute = self.peer.conversation.mute, self._muted  # type: ignore[method-assign]

    def _muted(self, wait_ms: int) -> None:
        self._waits.append(wait_ms)
        self._mute(wait_ms)

    @property
    def waits_ms(self) -> int | None:
        """For how long it is muted, None if it is not."""
        return None if self.peer.conversation._unmuting is None else max(self._waits)

    def say(self, request: Message, version: int | None = None) -> None:
        version = VERSIONS.get(request.API_KEY, type(request).MAX_VERSION) if version is None else version
        self._asked.append((request.API_KEY, version))
        self.peer.say(frame(request_bytes(request, version, len(self._asked))))

    async def ask(self, request: Message, version: int | None = None) -> Any:
        self.say(request, version)
        await until(lambda: len(self.answers()) == len(self._asked))
        return self.answers()[-1]

    def answers(self) -> list[Any]:
        """Return all answers that came, of each request its own."""
        found, data, at = [], b"".join(self.peer.answers), 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            key, version = self._asked[len(found)]
            number, body = decode_response_header(data[at + 4 : at + 4 + size], key, version)
            assert number == len(found) + 1
            found.append(response_class(key).decode(body, version))
            at += 4 + size
        return found

    def wait(self, ms: int) -> None:
        """Have so much time go by for the quotas, and the connection's wait be over."""
        self._house.now_s += ms / 1000
        self._waits.clear()
        self.peer.conversation._unmute()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with broker(tmp_path / "data") as service:
        await kafka(service).services.broker.create_topic("t", 1)
        yield House(service)


async def test_nothing_is_counted_while_there_are_no_quotas(house: House) -> None:
    client = house.client()
    answer = await client.ask(produce("t", [bytes(100_000)]))
    assert (answer.throttle_time_ms, client.waits_ms) == (0, None)
    await house.limit(QuotaEntity(ip=DEFAULT), connection_creation_rate=1.0)
    assert not house.quotas.enabled
    await client.ask(fetch("t", 0))
    for each in (house.quotas.produce, house.quotas.fetch, house.quotas.request):
        assert each.all == {}


async def test_a_producer_over_its_quota_waits_while_another_goes_on(house: House) -> None:
    """20,000 records in 200 batches at 10,000 bytes/s: each wait is Kafka's arithmetic, and the rate comes out so."""
    await house.limit(HOSTILE, producer_byte_rate=10_000.0)
    loud, other = house.client(), house.client()
    other.peer.conversation.client_id = "other"
    values = [bytes(20)] * 100
    size = len(request_bytes(produce("t", values), 12))
    began, waited, first = house.now_s, 0, 0
    for number in range(200):
        answer = await loud.ask(produce("t", values))
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, number * 100)
        waits_ms = answer.throttle_time_ms
        assert loud.waits_ms == (waits_ms or None)
        if not waits_ms:
            house.now_s += 0.001
            continue
        if not waited:
            first = number
            total = (number + 1) * size
            elapsed_ms = round((house.now_s - began) * 1000) % 1000
            window_ms = 10_000 + elapsed_ms
            rate = total / (window_ms / 1000)
            assert waits_ms == pytest.approx((rate - 10_000) / 10_000 * window_ms, abs=2)
        waited += 1
        # Nothing of it is taken up meanwhile, though it has come; the other client is served.
        loud.say(MetadataRequest(topics=[]))
        if number % 20 == 0:
            await until_answered(other)
        assert len(loud.answers()) == len(loud._asked) - 1
        assert other.peer.conversation._unmuting is None
        loud.wait(waits_ms)
        await until(lambda: len(loud.answers()) == len(loud._asked))
    assert waited > 40
    assert first * size < 110_000
    seconds = house.now_s - began
    assert 200 * size / (seconds + 10) == pytest.approx(10_000, rel=0.2)
    assert house.quotas.produce.all[("", "hostile")].throttled == waited


async def until_answered(client: Client) -> None:
    """Have a client that is not limited ask something, and get it."""
    count = len(client.peer.answers)
    client.peer.say(frame(request_bytes(MetadataRequest(topics=[]), 12)))
    await until(lambda: len(client.peer.answers) > count)


async def test_what_came_together_is_answered_before_it_waits_for_all_of_it(house: House) -> None:
    """Requests overlap: those begun before the first is answered are answered too, and the wait is for all of them."""
    await house.limit(HOSTILE, producer_byte_rate=1_000.0)
    client = house.client()
    one = frame(request_bytes(produce("t", [bytes(20_000)]), 12))
    client._asked += [(0, 12)] * 3
    client.peer.say(
        b"".join(frame(request_bytes(produce("t", [bytes(20_000)]), 12, number)) for number in (1, 2, 3))
    )
    await until(lambda: len(client.answers()) > 0)
    for _ in range(5):
        await asyncio.sleep(0)
    answers = client.answers()
    waits = [each.throttle_time_ms for each in answers]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(
        (len(one) - 4) - 10_000, abs=1
    )  # of ten seconds' bytes, at one byte in a ms
    assert client.waits_ms == pytest.approx(waits[-1], abs=1)
    while len(client.answers()) < 3:
        client.wait(waits[-1])
        await asyncio.sleep(0)
    assert [each.responses[0].partition_responses[0].base_offset for each in client.answers()] == [0, 1, 2]


async def test_acks_0_is_limited_though_nobody_is_told(house: House) -> None:
    await house.limit(HOSTILE, producer_byte_rate=1_000.0)
    client = house.client()
    client.say(produce("t", [bytes(15_000)], acks=0))
    await until(lambda: client.waits_ms is not None)
    assert client.peer.answers == []
    assert client.waits_ms is not None
    assert client.waits_ms > 4_000


async def test_who_leaves_does_not_wait_and_what_it_sent_is_carried_out(house: House) -> None:
    await house.limit(HOSTILE, producer_byte_rate=1_000.0)
    client = house.client()
    for _ in range(4):
        client.say(produce("t", [bytes(15_000)], acks=0))
    await until(lambda: client.waits_ms is not None)
    client.peer.conversation.leave()
    client.peer.conversation.hang_up()
    await until(lambda: client.peer.ended)
    assert client.waits_ms is None
    reader = house.client()
    reader_answer = await reader.ask(fetch("t", 0))
    assert reader_answer.responses[0].partitions[0].high_watermark == 4


async def test_a_consumer_over_its_quota_gets_nothing_waits_and_then_gets_it_all(house: House) -> None:
    """20,000 records come whole and once, each wait with an empty answer in the session, and at the rate."""
    producer = house.client()
    for _ in range(200):
        await producer.ask(produce("t", [bytes(50)] * 100))
    await house.limit(HOSTILE, consumer_byte_rate=20_000.0)
    consumer = house.client()
    began, offset, total, waited = house.now_s, 0, 0, 0
    answer = await consumer.ask(fetch("t", 0, session_epoch=0))
    session_id, epoch = answer.session_id, 1
    assert session_id != 0
    while True:
        records = [row for topic in answer.responses for row in topic.partitions if row.records]
        if answer.throttle_time_ms:
            waited += 1
            assert records == []
            assert consumer.waits_ms == answer.throttle_time_ms
            assert answer.session_id == session_id, "the session goes on"
            consumer.wait(answer.throttle_time_ms)
        for row in records:
            total += len(row.records)
            base = int.from_bytes(row.records[:8], "big")
            assert base == offset, "nothing twice, nothing left out"
            last = row.records
            at = 0
            while at < len(last):
                offset = int.from_bytes(last[at : at + 8], "big") + 100
                at += 12 + int.from_bytes(last[at + 8 : at + 12], "big")
        if offset == 20_000:
            break
        house.now_s += 0.001
        answer = await consumer.ask(fetch("t", offset, session_id=session_id, session_epoch=epoch))
        epoch += 1
    assert waited > 0
    assert total / (house.now_s - began + 10) == pytest.approx(20_000, rel=0.2)


async def test_the_first_answer_of_a_session_may_be_withheld_and_then_there_is_none(house: House) -> None:
    producer = house.client()
    await producer.ask(produce("t", [bytes(30_000)]))
    await house.limit(HOSTILE, consumer_byte_rate=4_000.0)
    consumer = house.client()
    given = await consumer.ask(fetch("t", 0))
    assert given.responses[0].partitions[0].records
    assert given.throttle_time_ms == 0
    sessions = len(house.services.fetch_sessions)
    withheld = await consumer.ask(fetch("t", 0, session_epoch=0))
    assert withheld.throttle_time_ms > 0
    assert (withheld.session_id, withheld.responses) == (0, [])
    assert len(house.services.fetch_sessions) == sessions
    consumer.wait(30_000)
    again = await consumer.ask(fetch("t", 0, session_epoch=0))
    assert again.session_id != 0
    assert again.responses[0].partitions[0].records


async def test_a_batch_larger_than_all_windows_hold_is_given_all_the_same(house: House) -> None:
    """Otherwise it never would be, whatever its consumer waits for, and with it all that lies behind it."""
    producer = house.client()
    for _ in range(2):
        await producer.ask(produce("t", [bytes(60_000)]))
    await house.limit(HOSTILE, consumer_byte_rate=1_000.0)
    consumer = house.client()
    answer = await consumer.ask(fetch("t", 0))
    assert answer.responses[0].partitions[0].records
    assert answer.throttle_time_ms == pytest.approx(50_000, rel=0.02)
    consumer.wait(answer.throttle_time_ms)
    answer = await consumer.ask(fetch("t", 1))
    assert answer.responses[0].partitions[0].records


async def test_time_on_the_loop_is_limited_and_a_wait_lasts_a_window_at_most(house: House) -> None:
    await house.limit(HOSTILE, request_percentage=1.0)
    client = house.client()
    cost_s = 0.0

    def clock() -> float:
        house.now_s += cost_s  # each look at the clock: two in a step of a handler
        return house.now_s

    house.quotas.clock = clock
    answer = await client.ask(MetadataRequest(topics=[]))
    assert answer.throttle_time_ms == 0
    cost_s = 0.2
    waits = []
    for _ in range(3):
        answer = await client.ask(MetadataRequest(topics=[]))
        waits.append(answer.throttle_time_ms)
        cost_s, spent = 0.0, cost_s
        if answer.throttle_time_ms:
            client.wait(answer.throttle_time_ms)
        cost_s = spent
    assert waits[-1] == 1000
    await house.limit(HOSTILE, request_percentage=None)
    assert (await client.ask(MetadataRequest(topics=[]))).throttle_time_ms == 0


async def test_time_that_a_request_waits_for_something_does_not_count() -> None:
    now = 0.0

    async def handler() -> str:
        nonlocal now
        now += 0.003
        await asyncio.sleep(0)
        now += 0.004
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            now += 0.005
        return "done"

    timed = Timed(handler(), lambda: now)
    task = asyncio.ensure_future(awaited(timed))
    for _ in range(5):
        await asyncio.sleep(0)
        now += 1
    task.cancel()
    assert await task == "done"
    assert timed.seconds == pytest.approx(0.012)


async def awaited(timed: Timed) -> Any:
    return await timed


async def test_strangers_and_brokers_are_not_limited() -> None:
    async def handler() -> str:
        return "answer"

    stranger: Any = SimpleNamespace(is_stranger=True)
    known: Any = SimpleNamespace(is_stranger=False)
    for context, key in ((stranger, 3), (known, 17), (known, 36), (known, 27)):
        assert await throttled(handler(), context, key, 10, lambda wait_ms: None) == "answer"


async def test_who_cannot_be_told_waits_all_the_same(house: House) -> None:
    """Of all answers to known clients that of DescribeQuorum alone has no place for it."""
    await house.limit(HOSTILE, request_percentage=0.001)
    house.quotas.clock = lambda: setattr(house, "now_s", house.now_s + 0.05) or house.now_s
    client = house.client()
    answer = await client.ask(DescribeQuorumRequest(topics=[]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert client.waits_ms == 1000


async def test_users_have_quotas_whatever_they_call_themselves(house: House) -> None:
    from magnetar.kafka.context import RequestContext

    login: Any = SimpleNamespace(principal=SimpleNamespace(role="alice"), is_done=True)
    context = RequestContext(house.services, 0, "app", "/h", house.service.listeners["kafka"][0], login)
    assert context.who == ("alice", "app")
    assert not context.is_stranger
    context.login = None
    assert context.who == ("ANONYMOUS", "app")
    await house.limit(QuotaEntity(DEFAULT), producer_byte_rate=100.0)
    answer = await house.client().ask(produce("t", [bytes(5_000)]))
    assert answer.throttle_time_ms > 1_000
    assert list(house.quotas.produce.all) == [("ANONYMOUS", "")]


def topics(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


async def test_topics_are_made_and_deleted_no_faster_than_the_quota_says(house: House) -> None:
    """The quota is one partition a second: eleven at once, more than that goes into debt, and then nothing."""
    await house.limit(HOSTILE, controller_mutation_rate=1.0)
    client = house.client()
    answer = await client.ask(topics("a", partitions=20))
    assert [each.error_code for each in answer.topics] == [0]
    assert answer.throttle_time_ms == 0
    answer = await client.ask(topics("t", "b", "c"))  # the first is there already, and takes nothing
    assert [each.error_code for each in answer.topics] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]
    assert answer.throttle_time_ms == client.waits_ms == 9000
    assert house.services.broker.get("b") is None
    client.wait(9000)
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=4, assignments=None)])
    assert [each.error_code for each in (await client.ask(grow)).results] == [0]
    again = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5, assignments=None)])
    refused = await client.ask(again)
    assert [each.error_code for each in refused.results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert refused.throttle_time_ms == 3000
    client.wait(3000)
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
    assert [each.error_code for each in (await client.ask(delete)).responses] == [0]
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    refused = await client.ask(delete)
    assert [each.error_code for each in refused.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert refused.throttle_time_ms == 20_000
    assert house.services.broker.get("t") is not None


async def test_older_clients_are_served_and_then_wait(house: House) -> None:
    await house.limit(HOSTILE, controller_mutation_rate=1.0)
    client = house.client()
    assert (await client.ask(topics("a", partitions=11), version=5)).throttle_time_ms == 0
    answer = await client.ask(topics("b", partitions=5), version=5)
    assert [each.error_code for each in answer.topics] == [0]
    assert answer.throttle_time_ms == client.waits_ms == 5000


async def test_connections_of_an_address_that_makes_too_many(house: House) -> None:
    quotas = house.quotas
    assert quotas.connected("127.0.0.1") == 0
    assert quotas.connections.all == {}
    await house.limit(QuotaEntity(ip="127.0.0.1"), connection_creation_rate=2.0)
    waits = [quotas.connected("::ffff:127.0.0.1") for _ in range(25)]
    assert waits[:20] == [0] * 20
    assert all(waits[20:])
    assert max(waits) <= 1000
    house.now_s += 5
    assert all(quotas.connected("127.0.0.1") for _ in range(100))
    assert quotas.connected("127.0.0.2") == 0
    assert quotas.connected("local") == 0
    house.now_s += 7
    assert quotas.connected("127.0.0.1") == 0, (
        "who is not let in does not count, or nobody ever would be again"
    )
