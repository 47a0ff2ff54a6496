"""A client's pattern costs what the names are long, and whoever watches concerns nobody else."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from magnetar.pulsar.errors import NotAllowed
from magnetar.pulsar.patterns import Pattern, matching
from magnetar.pulsar.phase import Phase
from magnetar.pulsar.watches import MAX_NOTES
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.pulsar import raw
from tests.pulsar.inside import Client, Inside, inside, settled


def watch(pattern: str, namespace: str = "public/default", watcher_id: int = 1) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
    asked = command.watchTopicList
    asked.request_id, asked.watcher_id, asked.namespace = 5, watcher_id, namespace
    asked.topics_pattern = pattern
    return command


def topics_of(pattern: str | None = None, namespace: str = "public/default") -> BaseCommand:
    command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
    command.getTopicsOfNamespace.request_id = 6
    command.getTopicsOfNamespace.namespace = namespace
    if pattern is not None:
        command.getTopicsOfNamespace.topics_pattern = pattern
    return command


def topic(name: str, partitions: int = 1) -> Topic:
    return Topic(TopicName("public", "default", name), name, name.encode(), partitions)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("persistent://public/default/t.*", "persistent://public/default/t1", True),
        ("public/default/t.*", "persistent://public/default/t1", True),
        ("non-persistent://public/default/t.*", "persistent://public/default/t1", True),
        ("public/default/t", "persistent://public/default/t1", False),
        ("default/t1", "persistent://public/default/t1", False),
        (r"^persistent://public/default/\w\d$", "persistent://public/default/t1", True),
        (".*://public/default/t1", "non-persistent://public/default/t1", True),
        ("public/default/.*-partition-[01]", "persistent://public/default/t-partition-1", True),
        ("public/default/Ä.", "persistent://public/default/Äß", True),
    ],
)
def test_patterns_mean_what_they_mean_to_pulsar(pattern: str, name: str, matches: bool) -> None:
    assert Pattern(pattern, 50).matches(name) is matches


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", r"(a)\1", "(.{0,9}){0,99}x", r"\pL{500}", "a" * 51, "a" * (5 << 20), "(" * 50]
)
def test_what_is_long_or_large_or_cannot_be_linear_is_refused(pattern: str) -> None:
    with pytest.raises(NotAllowed):
        Pattern(pattern, 50)


def test_what_would_compile_to_very_much_is_given_up_amid_it() -> None:
    """RE2 may take 128 KB for it; with what it takes by itself it would go on, and only then be found too large."""
    with pytest.raises(NotAllowed, match="not understood: pattern too large"):
        Pattern(r"\pL{20}", 50)


async def test_alternatives_do_not_multiply() -> None:
    """Of what goes back, each doubles the time: sixty of them would end after the sun."""
    pattern = "public/default/" + "(a|a)" * 60 + "b"
    async with inside(subscriptionPatternMaxLength="500") as broker:
        await broker.broker.create_topic("a" * 60 + "c", 1)
        await broker.broker.create_topic("a" * 60 + "b", 1)
        client = broker.client()
        for command in (watch(pattern), topics_of(pattern)):
            answer = await client.ask(command)
            names = answer.watchTopicListSuccess.topic or answer.getTopicsOfNamespaceResponse.topics
            assert list(names) == ["persistent://public/default/" + "a" * 60 + "b"]
        assert answer.getTopicsOfNamespaceResponse.filtered


async def test_an_involved_pattern_over_many_topics_gives_others_their_turn() -> None:
    """Between two turns of the others stands a bounded number of steps, however many the topics are."""
    pattern = Pattern("public/default/(.{0,9}){0,9}x", 50)
    names: list[str] = []
    ends: list[int] = []
    is_done = False

    async def others() -> None:
        while not is_done:
            ends.append(len(names))
            await asyncio.sleep(0)

    bystander = asyncio.ensure_future(others())
    await asyncio.sleep(0)
    async for _, name in matching(
        [topic(f"{index:0100d}x") for index in range(3000)], "public/default", None
    ):
        names.append(name)
    plain = len(ends)
    names.clear()
    ends.clear()
    async for _, name in matching(
        [topic(f"{index:0100d}x") for index in range(3000)], "public/default", pattern
    ):
        names.append(name)
    is_done = True
    await bystander
    steps = pattern.work("persistent://public/default/" + "0" * 101)
    assert plain >= 3000 * 500 // 200_000
    assert len(ends) >= 3000 * steps // 200_000 // 2


async def _told(client: Client) -> list[tuple[list[str], list[str]]]:
    await settled()
    heard = [each.watchTopicUpdate for each in client.heard() if each.type == BaseCommand.WATCH_TOPIC_UPDATE]
    return [(list(each.new_topics), list(each.deleted_topics)) for each in heard]


async def test_a_watcher_is_told_what_comes_grows_and_goes() -> None:
    base = "persistent://public/default/"
    async with inside() as broker:
        core = broker.broker
        await core.create_topic("t-old", 1)
        await core.create_topic("other", 1)
        client = broker.client()
        assert list((await client.ask(watch("public/default/t-.*"))).watchTopicListSuccess.topic) == [
            base + "t-old"
        ]
        await core.create_topic("t-new", 1)
        await core.create_topic("elsewhere", 1)
        assert await _told(client) == [([base + "t-new"], [])]
        await core.grow_topic("t-new", 2)
        came = [f"{base}t-new-partition-{index}" for index in range(2)]
        told = await _told(client)
        assert [name for each in told for name in each[0]] == came
        assert [name for each in told for name in each[1]] == [base + "t-new"]
        await core.set_topic_config("t-new", {"retention.ms": "1000"})
        assert await _told(client) == []
        await core.grow_topic("t-new", 3)
        assert await _told(client) == [([base + "t-new-partition-2"], [])]
        await core.delete_topic("t-new")
        assert await _told(client) == [([], [*came, base + "t-new-partition-2"])]
        client.send(watch("x", watcher_id=1))  # replaced: the old one says nothing more
        await core.create_topic("t-newer", 1)
        assert await _told(client) == []
        client.leave()
        await settled()
        assert broker.services.watches.count == 0


async def test_the_hash_tells_who_comes_back_that_nothing_has_changed() -> None:
    async with inside() as broker:
        client = broker.client()
        await client.ask(watch("public/default/.*"))
        for name in ("b", "a", "c"):
            await broker.broker.create_topic(name, 1)
        await broker.broker.delete_topic("b")
        await settled()
        hashes = [each.watchTopicUpdate.topics_hash for each in client.heard()]
        assert all(one != other for one, other in pairwise(hashes))
        again = watch("public/default/.*", watcher_id=2)
        again.watchTopicList.topics_hash = hashes[-1]
        answer = (await client.ask(again)).watchTopicListSuccess
        assert (list(answer.topic), answer.topics_hash) == ([], hashes[-1])
        asked = topics_of()
        asked.getTopicsOfNamespace.topics_hash = hashes[-1]
        assert not (await client.ask(asked)).getTopicsOfNamespaceResponse.changed


async def test_who_watches_and_does_not_listen_is_let_go() -> None:
    async with inside() as broker:
        client, other = broker.client(), broker.client()
        await client.ask(watch("public/default/.*"))
        await other.ask(watch("public/default/.*"))
        client.transport.takes = False
        client.socket.pause_writing()
        for index in range(MAX_NOTES + 1):
            await broker.broker.create_topic(f"t{index}", 1)
        await settled()
        assert client.transport.is_closing()
        assert other.is_open
        assert len([name for came, _ in await _told(other) for name in came]) == MAX_NOTES + 1
        assert broker.services.watches.count == 1


async def _grant(broker: Inside, namespace: str, **roles: list[str]) -> None:
    content = broker.broker.namespaces.content(namespace)
    content["auth_policies"] = {
        "namespace_auth": roles,
        "destination_auth": {},
        "subscription_auth_roles": {},
    }
    await broker.broker.set_policies(namespace, json.dumps(content).encode())


SECURED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "tokenSecretKey": "data:;base64," + "QUFB" * 16,
    "superUserRoles": "root",
}


def _as(broker: Inside, role: str) -> Client:
    """Return a client of a role: how it proved that is not the matter here."""
    client = broker.client(connect=False)
    connection = client.socket.connection
    connection.phase, connection.role = Phase.CONNECTED, role
    connection.access = broker.broker.security.authorization.access(role)
    return client


@pytest.mark.parametrize("namespace", ["red/default", "red/new", "nobody/there"])
async def test_a_stranger_watches_nothing_and_stops_nobody(namespace: str) -> None:
    async with inside(**SECURED) as broker:
        await broker.broker.namespaces.create("red/default")
        await broker.broker.namespaces.create("blue/default")
        await _grant(broker, "blue/default", bob=["produce", "consume"])
        bob = _as(broker, "bob")
        for command in (watch(".*", namespace), topics_of(namespace=namespace)):
            assert (await bob.ask(command)).error.error == ServerError.AuthorizationError
        assert broker.services.watches.count == 0
        made = await broker.broker.create_topic(TopicName("red", "default", "t"))
        await broker.broker.delete_topic(made.kafka_name)
        assert await _told(bob) == []


async def test_a_watcher_that_loses_its_grant_is_told_nothing_and_stops_nobody() -> None:
    async with inside(**SECURED) as broker:
        await broker.broker.namespaces.create("red/default")
        await _grant(broker, "red/default", bob=["consume"], paul=["consume"])
        bob, paul = _as(broker, "bob"), _as(broker, "paul")
        for each in (bob, paul):
            assert (await each.ask(watch(".*", "red/default"))).type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
        await _grant(broker, "red/default", paul=["consume"])
        made = await broker.broker.create_topic(TopicName("red", "default", "t"))
        assert await _told(bob) == []
        assert await _told(paul) == [(["persistent://red/default/t"], [])]
        await broker.broker.delete_topic(made.kafka_name)
        assert await _told(bob) == []
        assert await _told(paul) == [([], ["persistent://red/default/t"])]


async def test_a_pattern_that_is_refused_leaves_no_watcher() -> None:
    async with inside() as broker:
        client = broker.client()
        answer = await client.ask(watch("(" * 10))
        assert (answer.type, answer.error.error) == (BaseCommand.ERROR, ServerError.NotAllowedError)
        answer = await client.ask(watch("a" * 51))
        assert answer.error.message == "Unable to create topic list watcher: Pattern longer than maximum: 50"
        assert broker.services.watches.count == 0
        # What is asked once is answered all the same; the client filters by itself.
        answer = await client.ask(topics_of("(" * 10))
        assert not answer.getTopicsOfNamespaceResponse.filtered
        client.send(raw.ping())
        assert client.is_open


async def test_one_connection_has_few_watchers() -> None:
    async with inside() as broker:
        client = broker.client()
        for number in range(1000):
            client.send(watch(".*", watcher_id=number))
        await settled(300)
        assert broker.services.watches.count == 1000
        client.heard()
        refused = await client.ask(watch(".*", watcher_id=1000))
        assert (refused.type, refused.error.error) == (BaseCommand.ERROR, ServerError.NotAllowedError)
        again = await client.ask(watch(".*", watcher_id=999))
        assert again.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS, "one that is replaced is none more"
        other = await broker.client().ask(watch(".*"))
        assert other.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS


async def test_a_watcher_that_fails_is_ended_and_the_next_one_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside() as broker:
        first, second = broker.client(), broker.client()
        for client in (first, second):
            await client.ask(watch(".*"))
        (failing,) = first.socket.connection.watchers.values()
        monkeypatch.setattr(failing, "_send", lambda came, went: 1 // 0)
        await broker.broker.create_topic("t", 1)
        assert await _told(second) == [(["persistent://public/default/t"], [])]
        assert failing.is_ended
        assert broker.services.watches.count == 1
        assert [each.levelname for each in caplog.records] == ["ERROR"]
        assert first.is_open


async def test_very_many_watchers_are_told_in_turns() -> None:
    async with inside() as broker:
        clients = [broker.client() for _ in range(40)]
        for client in clients:
            for number in range(20):
                client.send(watch(".*", watcher_id=number))
        await settled(100)
        for client in clients:
            client.heard()
        await broker.broker.create_topic("t", 1)
        told = [0]
        while told[-1] < 800:
            await asyncio.sleep(0)
            told.append(told[-1] + sum(len(client.heard()) for client in clients))
        assert max(after - before for before, after in pairwise(told)) < 400
