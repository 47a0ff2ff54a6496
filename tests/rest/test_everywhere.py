"""Brokers that do their parts of a request: what moves meanwhile, who is silent or late, and what cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.auth.authentication import Principal
from magnetar.base.background import Background
from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.cluster import asking_owners
from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.cluster.ownership import NotOwned, Owned
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.rest import everywhere
from magnetar.pulsar.rest.everywhere import ABOUT, answer_others, of_names, part, part_without_opening
from magnetar.pulsar.rest.request import Address, AdminRequest, RestError

NAMES = [f"persistent://public/default/t-partition-{number}" for number in range(100)]
NOWHERE = Address("", "", "", "")


@part
async def who(ask: AdminRequest, name: PulsarName) -> list[Any]:
    """Tells which broker did it, and what it was told."""
    broker = cast(Any, ask.services)
    await broker.doing(name)
    if broker.owners[name.partition] != broker.number:
        raise NotOwned(str(name), Owned(broker.owners[name.partition], 1))
    return [broker.number, dict(ask.path), dict(ask.query), ask.body.decode(), ask.domain, ask.principal.role]


class Broker:
    """Its services, as far as a part sees them. Brokers know ``owners`` as soon as they change."""

    def __init__(self, number: int, owners: list[int], others: dict[int, Broker]) -> None:
        self.number = number
        self.owners = owners
        self.opened: list[str] = []
        self.asked: list[int] = []
        """How many partitions each message was about."""
        self.background = Background()
        ownership = SimpleNamespace(
            node_id=number, owner=lambda topic, partition: Owned(self.believes[partition], 1)
        )
        self.believes = owners
        self.between = BetweenBrokers(lambda: False)
        self.between.way = self._ask
        self.broker = SimpleNamespace(
            cluster=SimpleNamespace(ownership=ownership, between=self.between), background=self.background
        )
        self.topics = SimpleNamespace(any=self._open)
        self.doing: Callable[[PulsarName], Any] = self._nothing
        self.others = others
        others[number] = self
        answer_others(cast(Any, self), lambda: NOWHERE)

    async def _nothing(self, name: PulsarName) -> None:
        pass

    async def _open(self, name: PulsarName, *, create: bool) -> None:
        self.opened.append(str(name))

    async def _ask(self, node_id: int, about: str, asked: bytes) -> bytes:
        other = self.others[node_id]
        other.asked.append(len(json.loads(asked)["partitions"]))
        return await other.between.answered(about, asked)

    def request(self) -> AdminRequest:
        path = {"tenant": "public", "namespace": "default", "topic": "t"}
        return AdminRequest(
            path, {"force": "true"}, {}, b'"\xc3\xa9"', cast(Any, self), Principal("ann", "token"), NOWHERE
        )


def asking(names: object, part: str = "test_everywhere.who") -> bytes:
    asked = {"part": part, "path": {}, "query": {}, "body": "", "domain": "persistent", "role": ""}
    return json.dumps({**asked, "partitions": names}).encode()


@pytest.fixture
def owners() -> list[int]:
    return [number % 2 for number in range(len(NAMES))]


@pytest.fixture
def pair(owners: list[int]) -> list[Broker]:
    others: dict[int, Broker] = {}
    return [Broker(number, owners, others) for number in range(2)]


async def test_each_does_its_own_and_is_told_all_that_was_asked(
    pair: list[Broker], owners: list[int]
) -> None:
    ask = pair[0].request()
    found = await of_names(ask, who, NAMES)
    assert list(found) == NAMES
    for owner, told in zip(owners, found.values(), strict=True):
        assert told == [owner, dict(ask.path), {"force": "true"}, '"é"', "persistent", "ann"]
    assert pair[1].asked == [20, 20, 10]
    assert pair[1].opened == NAMES[1::2]


@part_without_opening
async def leaves_closed(ask: AdminRequest, name: PulsarName) -> int:
    return cast(Any, ask.services).number


async def test_what_need_not_be_open_stays_as_it_is(pair: list[Broker], owners: list[int]) -> None:
    assert list((await of_names(pair[0].request(), leaves_closed, NAMES)).values()) == owners
    assert pair[0].opened == pair[1].opened == []


async def test_one_that_cannot_be_opened_keeps_nobody_from_the_others(pair: list[Broker]) -> None:
    async def broken(name: PulsarName, *, create: bool) -> None:
        raise TopicNotFound("it is gone")

    pair[0].topics.any = broken
    await of_names(pair[0].request(), who, NAMES)  # the part itself did not need it


async def test_what_moves_meanwhile_is_looked_for_again_and_nothing_else_done_twice(
    pair: list[Broker], owners: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_owners, "_PAUSE_S", 0.01)
    pair[0].believes = [1] * len(NAMES)  # it has not heard yet of what came to it
    done: list[str] = []

    async def noted(name: PulsarName) -> None:
        done.append(str(name))
        if len(done) == len(NAMES):
            pair[0].believes = owners

    pair[1].doing = pair[0].doing = noted
    found = await of_names(pair[0].request(), who, NAMES)
    assert [told[0] for told in found.values()] == owners
    assert done == [*NAMES, *NAMES[0::2]]


async def test_what_has_no_owner_that_stays_is_no_reason_to_send_anybody_on(
    pair: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_owners, "_PAUSE_S", 0.0)
    pair[0].believes = [1] * len(NAMES)
    with pytest.raises(RestError, match="ask again") as refused:
        await of_names(pair[0].request(), who, NAMES)
    assert refused.value.status == 503


async def test_a_refusal_is_raised_when_all_have_been_asked(pair: list[Broker]) -> None:
    done: list[int | None] = []

    async def refuses(name: PulsarName) -> None:
        done.append(name.partition)
        if name.partition == 7:
            raise TopicNotFound(f"Topic {name} not found")

    pair[1].doing = pair[0].doing = refuses
    with pytest.raises(RestError, match="t-partition-7 not found") as refused:
        await of_names(pair[0].request(), who, NAMES)
    assert refused.value.status == 404
    assert sorted(cast(list[int], done)) == list(range(len(NAMES)))
    with pytest.raises(TopicNotFound):  # its own is what it is
        await of_names(pair[1].request(), who, NAMES)


async def test_who_is_silent_or_late_is_told_of(pair: list[Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(node_id: int, about: str, asked: bytes) -> bytes:
        raise BrokerError("broker 1: it does not answer")

    way = pair[0].between.way
    pair[0].between.way = silent
    with pytest.raises(RestError, match="broker 1: it does not answer") as refused:
        await of_names(pair[0].request(), who, NAMES)
    assert refused.value.status == 503
    pair[0].between.way = None
    with pytest.raises(RestError, match="Kafka's listeners") as refused:
        await of_names(pair[0].request(), who, NAMES)
    pair[0].between.way = way
    stands_still = asyncio.Event()

    async def waits(name: PulsarName) -> None:
        await stands_still.wait()

    pair[1].doing = waits
    monkeypatch.setattr(everywhere, "_ANSWER_WITHIN_S", 0.01)
    with pytest.raises(RestError, match="takes too long") as refused:
        await of_names(pair[0].request(), who, NAMES[1::2])
    assert refused.value.status == 503
    stands_still.set()


@pytest.mark.parametrize(
    "asked",
    [
        *(b"", b"[]", b"{}", b"\xff", b"[" * 100_000),
        asking([], part="no.such"),
        asking(NAMES),  # more than anybody asks about at once
        asking([7]),
        asking(["persistent://a/b/c/d/e"]),
        asking("persistent://public/default/t"),
    ],
)
async def test_what_cannot_be_read_ends_the_connection(pair: list[Broker], asked: bytes) -> None:
    with pytest.raises(ConnectionAbortedError):
        await pair[0].between.answered(ABOUT, asked)
