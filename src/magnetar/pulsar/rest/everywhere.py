"""What a request does to each partition of a topic, whichever brokers have them.

The broker that was asked does its own part, and asks the others for theirs as they ask each other about anything
(`magnetar.cluster.between_brokers`), of some partitions in one message of JSON:

    asked     {"part": name, "path": {...}, "query": {...}, "body": text, "domain": which, "role": whose,
               "partitions": [name, ...]}
    answered  [{"is": answer} or {"status": HTTP status, "reason": words} or {"moved": true}, ...]

A transaction coordinator goes by the name of its partition of ``transaction_coordinator_assign``, as with Pulsar.

Whoever asks was admitted by the broker that was asked first; the others do as they are told. (Pulsar's brokers are
clients of each other's admin REST for this.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from magnetar.auth.authentication import Principal
from magnetar.base.errors import BrokerError, InvalidTopic
from magnetar.base.slices import batched, sliced
from magnetar.cluster.asking_owners import ask_owners
from magnetar.cluster.ownership import NotOwned, Owned
from magnetar.pulsar.names import PulsarName, names_of
from magnetar.pulsar.rest.refusals import refusal_of
from magnetar.pulsar.rest.request import Address, AdminRequest, RestError
from magnetar.pulsar.services import PulsarServices
from magnetar.pulsar.topic import PulsarTopic
from magnetar.topics.topic import Topic

ABOUT = "admin.partitions"
_AT_ONCE = 20
"""Partitions that are opened together, or in one message."""
_ANSWER_WITHIN_S = 8.0
"""Less than the time in which brokers wait for each other."""

Part = Callable[[AdminRequest, PulsarName], Awaitable[Any]]
"""What is done to one partition, by the broker that has it; returns JSON."""

_PARTS: dict[str, Part] = {}
_UNOPENED: set[Part] = set()


def part(function: Part) -> Part:
    """Let other brokers ask for what a function does to a partition."""
    _PARTS[_name(function)] = function
    return function


def part_without_opening(function: Part) -> Part:
    """Do as `part`, and leave what is not open as it is."""
    _UNOPENED.add(function)
    return part(function)


def _name(function: Part) -> str:
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


async def opened(ask: AdminRequest, name: PulsarName) -> PulsarTopic:
    """Return a partition of a persistent topic, opened if need be; raise ``NotOwned`` and what opening raises."""
    return await ask.services.topics.get(name, create=False)


def check_not_elsewhere(ask: AdminRequest, what: str, owner: Owned | None) -> None:
    """Raise ``NotOwned`` if another broker has it; what nobody has may be this one's."""
    if owner is not None and owner.node_id != ask.services.broker.cluster.ownership.node_id:
        raise NotOwned(what, owner)


async def everywhere(ask: AdminRequest, part: Part, topic: Topic) -> dict[str, Any]:
    """Return what a part gives for each partition that the path is about, by its name; raise the first refusal.

    Whoever names one partition, or a topic that has none, is sent on to its owner: then ``NotOwned`` is raised.
    """
    if topic.partitioned and ask.topic.partition is None:
        return await of_names(ask, part, names_of(topic))
    name = str(ask.topic)
    return {name: await part(ask, PulsarName.parse(name))}


async def of_names(ask: AdminRequest, part: Part, names: Sequence[str]) -> dict[str, Any]:
    """Return what a part gives for these partitions, by name. All are asked before the first refusal is raised."""
    ownership = ask.services.broker.cluster.ownership

    def owner(name: str) -> Owned | None:
        parsed = PulsarName.parse(name)
        topic, number = parsed.topic, parsed.partition or 0
        if parsed.finds_coordinator and ask.services.transactions is not None:
            return ask.services.transactions.coordinator.owner(number)
        return ownership.owner(topic, number)

    async def ask_one(node_id: int, some: Sequence[str]) -> list[Any]:
        if node_id == ownership.node_id:
            return await _here(ask, part, some)
        return await _there(ask, node_id, part, some)

    found = await ask_owners(ownership, names, owner, ask_one)
    refused = next((each for each in found.values() if isinstance(each, BaseException)), None)
    if isinstance(refused, NotOwned):  # to be sent on is of no use to whoever asks about several
        raise RestError(503, f"{refused}: it has no owner that stays; ask again")
    if refused is not None:
        raise refused
    return found


async def _here(ask: AdminRequest, part: Part, names: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for some in batched(names, _AT_ONCE):
        parsed = [PulsarName.parse(name) for name in some]
        if part not in _UNOPENED:
            opening = (ask.services.topics.any(name, create=False) for name in parsed)
            await asyncio.gather(*opening, return_exceptions=True)  # the part will find out
        async for name in sliced(parsed):
            try:
                found.append(await part(ask, name))
            except Exception as error:
                found.append(error)
    return found


async def _there(ask: AdminRequest, node_id: int, part: Part, names: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for some in batched(names, _AT_ONCE):
        asked = {
            "part": _name(part),
            "path": dict(ask.path),
            "query": dict(ask.query),
            "body": ask.body.decode("latin-1"),
            "domain": ask.domain,
            "role": ask.principal.role,
            "partitions": list(some),
        }
        try:
            answer = await ask.services.broker.cluster.between.ask(node_id, ABOUT, asked)
        except BrokerError as error:  # it may have been done; nobody knows
            found += [RestError(503, str(error))] * len(some)
        else:
            found += [_read(name, each) for name, each in zip(some, answer, strict=True)]
    return found


def _read(name: str, told: Mapping[str, Any]) -> Any:
    if "moved" in told:
        return NotOwned(name, None)
    return told["is"] if "is" in told else RestError(told["status"], told["reason"])


def _told(what: str, outcome: Any) -> dict[str, Any]:
    if isinstance(outcome, NotOwned):
        return {"moved": True}
    if isinstance(outcome, BaseException):
        status, reason = refusal_of(outcome, what)
        return {"status": status, "reason": reason}
    return {"is": outcome}


def answer_others(services: PulsarServices, address: Callable[[], Address]) -> None:
    """Have this broker do its part of what others are asked."""

    def read(asked: object) -> tuple[AdminRequest, Part, list[str]]:
        try:
            given = cast(Any, asked)
            names, part = given["partitions"], _PARTS[given["part"]]
            if not isinstance(names, list) or len(names) > _AT_ONCE:
                raise ValueError
            for name in names:
                PulsarName.parse(name)
            ask = AdminRequest(
                given["path"],
                given["query"],
                {},
                given["body"].encode("latin-1"),
                services,
                Principal(given["role"], "another broker"),
                address(),
                given["domain"],
            )
        except (KeyError, TypeError, AttributeError, InvalidTopic) as error:
            raise ValueError from error
        return ask, part, names

    async def answer(asked: tuple[AdminRequest, Part, list[str]]) -> list[dict[str, Any]]:
        ask, part, names = asked
        # Not given up after that time, as nobody knows what of it is done; whoever asks next must not wait for it.
        work = services.broker.background.once("another broker's request", _here(ask, part, names))
        done, _ = await asyncio.wait([work], timeout=_ANSWER_WITHIN_S)
        late = RestError(503, "its broker takes too long: it may be done yet")
        outcomes = work.result() if done else [late] * len(names)
        return [_told(_name(part), each) for each in outcomes]

    services.broker.cluster.between.answer(ABOUT, read, answer)
