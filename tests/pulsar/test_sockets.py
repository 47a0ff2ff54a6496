"""What one client makes the broker keep and do is bounded: counted, not timed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from magnetar.pulsar import server
from magnetar.pulsar.connection import ANSWERS_AT_ONCE_BYTES
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.phase import Phase
from magnetar.topics.names import TopicName
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, KeySharedMode, ServerError
from tests.pulsar import raw
from tests.pulsar.inside import Inside, inside, settled
from tests.pulsar.test_patterns import topics_of

HIGH = 1 << 20
PRODUCED = BaseCommand.PRODUCER_SUCCESS


def _get_schema() -> BaseCommand:
    command = BaseCommand(type=BaseCommand.GET_SCHEMA)
    command.getSchema.request_id, command.getSchema.topic = 3, "persistent://public/default/big"
    return command


async def _with_topics(broker: Inside, count: int) -> None:
    for index in range(count):
        await broker.broker.create_topic(TopicName("public", "default", f"{index:0100d}"), 1)


async def _with_a_big_schema(broker: Inside) -> None:
    client = broker.client()
    made = raw.producer("persistent://public/default/big")
    made.producer.schema.name, made.producer.schema.type = "s", "Avro"
    made.producer.schema.schema_data = json.dumps(
        {"type": "record", "name": "r", "doc": "x" * 500_000, "fields": []}
    ).encode()
    client.send(made)
    await client.hears(BaseCommand.PRODUCER_SUCCESS)
    client.leave()
    await settled()


@pytest.mark.parametrize("what", ["topics", "schemas", "pings"])
async def test_of_who_asks_and_does_not_listen_no_more_is_taken_up(what: str) -> None:
    async with inside() as broker:
        if what == "topics":
            await _with_topics(broker, 100)
        if what == "schemas":
            await _with_a_big_schema(broker)
        question = {"topics": topics_of(), "schemas": _get_schema(), "pings": raw.ping()}[what]
        client = broker.client()
        client.transport.takes = False
        client.send(*[question] * 100_000 if what == "pings" else [question] * 400)
        await settled(3000)
        one = 520_000 if what == "schemas" else 15_000
        assert client.transport.unsent <= HIGH + ANSWERS_AT_ONCE_BYTES + 2 * server._MAX_UNDER_WAY * one
        if what != "pings":  # of those all the answers together are not much
            assert not client.transport.reading
            assert client.transport.coming or client.socket._frames.waiting
        assert broker.broker.serving.memory.held_bytes >= client.transport.unsent > 0
        client.transport.take()
        for _ in range(20_000):
            await asyncio.sleep(0)
            if (
                client.transport.reading
                and not client.transport.coming
                and not client.socket.connection.under_way
            ):
                break
        await settled()
        answers = [
            each for each in client.heard() if each.type not in (BaseCommand.PING, BaseCommand.CONNECTED)
        ]
        assert len(answers) == (100_000 if what == "pings" else 400)
        client.leave()
        await settled()
        assert broker.broker.serving.memory.held_bytes == 0


async def test_so_many_commands_of_one_client_are_under_way_and_no_more() -> None:
    async with inside() as broker:
        client = broker.client()
        client.send(
            *(
                raw.producer(f"persistent://public/default/t{number}", number, number)
                for number in range(500)
            ),
            *(raw.subscribe(f"persistent://public/default/t{number}", "s", number) for number in range(500)),
        )
        most = 0
        kinds: list[BaseCommand.Type] = []
        while kinds.count(BaseCommand.SUCCESS) < 500:
            most = max(most, client.socket.connection.under_way)
            kinds += [each.type for each in client.heard()]
            await asyncio.sleep(0)
        assert most == server._MAX_UNDER_WAY
        assert (kinds.count(BaseCommand.PRODUCER_SUCCESS), kinds.count(BaseCommand.SUCCESS)) == (500, 500)


async def test_strangers_say_little_and_are_let_go() -> None:
    async with inside(keepAliveIntervalSeconds="1") as broker:
        talker = broker.client(connect=False)
        talker.feed((server._STRANGERS_FRAME_BYTES + 1).to_bytes(4, "big") + bytes(100))
        assert not talker.is_open
        slow = broker.client(connect=False)
        slow.feed((server._STRANGERS_FRAME_BYTES - 1).to_bytes(4, "big") + bytes(1000))
        known = broker.client()
        for each in (slow, known):
            each.socket._connected_at -= 10
            each.socket.keep_alive(1)
        await settled()
        assert not slow.is_open
        assert known.is_open
        known.send(raw.producer("persistent://public/default/t"))
        await known.hears(BaseCommand.PRODUCER_SUCCESS)
        known.send((raw.send(), raw.entry(b"x" * (5 << 20))))
        assert (await known.hears()).type == BaseCommand.SEND_RECEIPT


async def test_all_that_strangers_half_say_together_is_bounded() -> None:
    async with inside() as broker:
        memory = broker.broker.serving.memory
        clients = [broker.client(connect=False) for _ in range(1000)]
        for each in clients:
            each.feed((32_000).to_bytes(4, "big") + bytes(31_000))
            assert each.is_open
        assert memory.held_bytes <= 1000 * (32 << 10)
        for each in clients:
            each.leave()
        await settled()
        assert memory.held_bytes == 0


async def test_who_takes_nothing_is_let_go_after_a_while() -> None:
    async with inside() as broker:
        client = broker.client()
        client.transport.takes = False
        client.send(*[raw.ping()] * 200_000)
        await settled(3000)
        assert client.socket._unwritable_since is not None
        client.socket.keep_alive(1)
        assert client.is_open
        client.socket._unwritable_since -= 10
        client.socket.keep_alive(1)
        assert not client.is_open


async def test_connections_are_counted_together_and_by_address() -> None:
    async with inside(**{"max.connections": "4", "max.connections.per.ip": "2"}) as broker:
        here = [broker.client(connect=False, host="10.0.0.1") for _ in range(3)]
        assert [each.is_open for each in here] == [True, True, False]
        await settled()
        there = [broker.client(connect=False, host=f"10.0.0.{index}") for index in (2, 3, 4)]
        assert [each.is_open for each in there] == [True, True, False]
        await settled()
        here[0].leave()
        await settled()
        assert broker.client(connect=False, host="10.0.0.4").is_open
        assert broker.broker.serving.connections.count == 4


async def test_while_it_is_found_out_who_somebody_is_nothing_else_is_heard() -> None:
    async with inside() as broker:
        client = broker.client(connect=False)
        connection = client.socket.connection
        connection.phase = Phase.PROVING  # a password is being looked at
        client.send(*[raw.ping()] * 100)
        await settled()
        assert client.is_open
        assert client.heard() == []
        connection.phase = Phase.CONNECTED
        client.socket._serving.went_on()
        await settled()
        assert len(client.heard()) == 100


@pytest.mark.parametrize("method", ["basic", "token", "tls", "sasl", "none", ""])
async def test_with_authentication_off_whatever_is_offered_is_taken(method: str) -> None:
    async with inside(tokenSecretKey="data:;base64," + "QUFB" * 16) as broker:
        client = broker.client(connect=False)
        hello = raw.hello()
        hello.connect.auth_method_name, hello.connect.auth_data = method, b"alice:secret"
        client.send(hello)
        await settled()
        assert client.is_open
        assert client.heard()[0].type == BaseCommand.CONNECTED
        again = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
        again.authResponse.response.auth_method_name = method
        again.authResponse.response.auth_data = b"mallory:guess"
        client.send(again, raw.ping())
        await settled()
        assert [each.type for each in client.heard()] == [BaseCommand.PONG]


async def _turns_until(is_done: Callable[[], bool]) -> int:
    """Return how many turns of the loop others have until then."""
    turns = 0
    while not is_done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_frames_are_read_as_far_as_there_is_memory() -> None:
    async with inside(**{"memory.requests.bytes": str(1 << 20)}) as broker:
        client = broker.client()
        assert (await client.ask(raw.producer("persistent://public/default/t"))).type == PRODUCED
        message = raw.frame(raw.send(), raw.entry(b"x" * 2_000_000))  # less than 1 MB may come all the same
        greedy = broker.broker.serving.memory.account(lambda: None, known=True)
        greedy.charge(2 << 20)
        greedy.may_take_more()  # it is what is being finished
        client.feed(message[:300_000])
        await settled()
        assert not client.transport.reading
        assert client.transport.coming, "the rest is left where it is"
        greedy.close()
        client.feed(message[300_000:])
        assert (await client.hears(BaseCommand.SEND_RECEIPT)).type == BaseCommand.SEND_RECEIPT
        assert client.transport.reading


async def test_many_commands_of_one_client_leave_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, whatever they are: here each look at the clock takes half a millisecond."""
    async with inside() as broker:
        client = broker.client()
        await settled()
        client.heard()
        now = [0.0]

        def slowly() -> float:
            now[0] += 0.0005
            return now[0]

        monkeypatch.setattr(client.socket._serving, "_clock", slowly)
        client.send(*[raw.ping()] * 150)
        heard = 0

        def all_heard() -> bool:
            nonlocal heard
            heard += len(client.heard())
            return heard >= 150

        assert await _turns_until(all_heard) > 10


async def test_very_many_ranges_leave_others_their_turn() -> None:
    command = raw.subscribe("persistent://public/default/t", "s", 1, subType=SubType.Key_Shared)
    command.subscribe.keySharedMeta.keySharedMode = KeySharedMode.STICKY
    for number in range(65_536):
        command.subscribe.keySharedMeta.hashRanges.add(start=number, end=number)
    async with inside() as broker:
        client = broker.client()
        await settled()
        client.heard()
        client.send(command)
        heard: list[BaseCommand] = []

        def answered() -> bool:
            heard.extend(client.heard())
            return bool(heard)

        assert await _turns_until(answered) > 64
        assert heard[0].type == BaseCommand.SUCCESS


@pytest.mark.parametrize("name", ["pulsar.dedup", "pulsar.repl.east"])
async def test_subscriptions_of_the_brokers_own_are_nobodys(name: str) -> None:
    async with inside(brokerDeduplicationEnabled="true") as broker:
        client = broker.client()
        first = raw.producer("persistent://public/default/t", 2)
        first.producer.initial_subscription_name = name
        for command in (raw.subscribe("persistent://public/default/t", name), first):
            refused = (await client.ask(command)).error
            assert refused.error == ServerError.ProducerBusy
            assert refused.message == "Subscription with reserved subscription name attempted"


async def test_consumers_of_what_is_not_persistent_bring_ranges_that_do_not_overlap() -> None:
    def sticky(number: int, start: int, end: int) -> BaseCommand:
        command = raw.subscribe("non-persistent://public/default/t", "s", number, subType=SubType.Key_Shared)
        command.subscribe.keySharedMeta.keySharedMode = KeySharedMode.STICKY
        command.subscribe.keySharedMeta.hashRanges.add(start=start, end=end)
        return command

    async with inside() as broker:
        client = broker.client()
        assert (await client.ask(sticky(1, 0, 100))).type == BaseCommand.SUCCESS
        refused = (await client.ask(sticky(2, 100, 200))).error
        assert refused.error == ServerError.ConsumerAssignError
        assert "overlaps" in refused.message
        assert (await client.ask(sticky(3, 101, 200))).type == BaseCommand.SUCCESS


async def test_a_subscription_that_nobody_has_becomes_of_the_type_that_is_wanted() -> None:
    topic = "persistent://public/default/t"
    shared = [raw.subscribe(topic, "s", number, subType=SubType.Shared) for number in (1, 2, 3)]
    async with inside() as broker:
        client = broker.client()
        assert (await client.ask(raw.subscribe(topic, "s", 1))).type == BaseCommand.SUCCESS
        assert (await client.ask(shared[1])).error.error == ServerError.ConsumerBusy
        assert (await client.ask(raw.subscribe(topic, "s", 2))).error.error == ServerError.ConsumerBusy
        closing = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        closing.close_consumer.consumer_id, closing.close_consumer.request_id = 1, 7
        assert (await client.ask(closing)).type == BaseCommand.SUCCESS
        for each in shared:
            assert (await client.ask(each)).type == BaseCommand.SUCCESS
        (found,) = broker.services.topics.all_open()[0].subscriptions.values()
        assert (found.sub_type, len(found.consumers)) == (SubType.Shared, 3)
