"""Subscriptions: listed, made, ended, moved; their messages passed over, expired."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.port import Position, StoredEntry
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import NotAllowed, SubscriptionNotFound
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.rest.everywhere import Part, everywhere, opened, part
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute
from magnetar.pulsar.rest.topics import found, one
from magnetar.pulsar.topic import PulsarTopic

_LONG_MAX = (1 << 63) - 1
_NOT_A_HEADER = re.compile(r"[^\x20-\x7e]")


def of_subscription(
    function: Callable[[AdminRequest, PulsarTopic, Subscription], Awaitable[Any]],
) -> Part:
    """Let what is done to the subscription of the path be a part: its answer in a list, empty where there is none."""

    @wraps(function)
    async def on(ask: AdminRequest, name: PulsarName) -> list[Any]:
        topic = await opened(ask, name)
        subscription = topic.subscriptions.get(_name(ask))
        return [] if subscription is None else [await function(ask, topic, subscription)]

    return part(on)


async def subscriptions(ask: AdminRequest) -> list[str]:
    """List a topic's subscriptions."""
    named = await everywhere(ask, names_on, found(ask))
    return sorted({name for some in named.values() for name in some})


@part
async def names_on(ask: AdminRequest, name: PulsarName) -> list[str]:
    return list((await opened(ask, name)).subscriptions)


async def create(ask: AdminRequest) -> None:
    """Make a subscription that begins at a message id (the body), or at the end; and its topic, as for a client."""
    _beginning(ask)
    if ask.topic.partition is None and await ask.services.topics.known(ask.topic) is None:
        await ask.services.topics.make(ask.topic, with_partitions=True)
    if _name(ask) in await subscriptions(ask):
        raise RestError(409, "Subscription already exists for topic")
    await everywhere(ask, create_on, found(ask))


@part
async def create_on(ask: AdminRequest, name: PulsarName) -> None:
    topic, (place, properties) = await opened(ask, name), _beginning(ask)
    start = Start.earliest if place == (-1, -1) else Start.latest
    exact = place if place is not None and 0 <= place[0] < _LONG_MAX else None
    try:
        made = await topic.subscription(
            Wanted(_name(ask), SubType.Exclusive, start=start, properties=properties)
        )
    except NotAllowed as error:  # there are as many as there may be
        raise RestError(409, str(error)) from None
    if exact is not None:
        topic.seek(made, await topic.places.of(exact))


def _beginning(ask: AdminRequest) -> tuple[tuple[int, int] | None, dict[str, str]]:
    """Return where the body has a subscription begin, and its properties."""
    content = ask.json()
    properties = content.get("properties") or {} if isinstance(content, dict) else {}
    return message_id(content), _properties(properties)


async def delete(ask: AdminRequest) -> None:
    """End a subscription; without ``force`` only one that nobody uses."""
    consumers = await _each(ask, consumers_on)
    if not ask.flag("force") and any(consumers):
        raise RestError(412, "Subscription has active connected consumers")
    await _each(ask, delete_on)


@of_subscription
async def consumers_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> int:
    return len(subscription.consumers)


@of_subscription
async def delete_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> None:
    await ask.services.groups.deleted(topic, _name(ask))
    await topic.unsubscribe(_name(ask))


async def skip_all(ask: AdminRequest) -> None:
    """Have a subscription pass over everything there is."""
    await _each(ask, skip_all_on)


@of_subscription
async def skip_all_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> None:
    last = await topic.places.last()
    if last.ledger_id >= 0:
        async with ask.services.groups.moving(topic, subscription):
            subscription.skip_to(last)


async def skip(ask: AdminRequest) -> None:
    """Have a subscription pass over so many messages (entries, as Pulsar counts here)."""
    topic, subscription = await one_subscription(ask)
    wanted = ask.number("count")
    if wanted <= 0:
        raise RestError(412, "the number of messages must be greater than 0")
    last = await nth_open(topic, subscription, wanted)
    if last is not None:
        async with ask.services.groups.moving(topic, subscription):
            subscription.skip_to(Position(last.ledger_id, last.entry_id))


async def reset_to_time(ask: AdminRequest) -> None:
    """Have a subscription begin again with the first message published at that time (ms) or later."""
    ask.number("timestamp")
    await _each(ask, reset_to_time_on)


@of_subscription
async def reset_to_time_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> None:
    async with ask.services.groups.moving(topic, subscription):
        topic.seek(subscription, await topic.places.at(ask.number("timestamp")))


async def reset_to_position(ask: AdminRequest) -> None:
    """Have a subscription begin again at a message id; with ``isExcluded`` behind it."""
    topic, subscription = await one_subscription(ask)
    content = ask.object()
    place = message_id(content)
    if place is None:
        raise RestError(412, "the body must hold ledgerId and entryId")
    if place == (-1, -1):
        position = await topic.places.of((-1, -1))
    elif place[0] >= _LONG_MAX:
        position = await topic.places.end()
    else:
        position = await topic.places.of((place[0], place[1] + bool(content.get("isExcluded"))))
    async with ask.services.groups.moving(topic, subscription):
        topic.seek(subscription, position)


async def expire(ask: AdminRequest) -> None:
    """Have a subscription pass over messages that are older than so many seconds."""
    ask.number("seconds")
    await _each(ask, expire_on)


@of_subscription
async def expire_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> None:
    await _expire(ask, topic, subscription)


async def expire_all(ask: AdminRequest) -> None:
    """Have all subscriptions pass over messages that are older than so many seconds."""
    ask.number("seconds")
    await everywhere(ask, expire_all_on, found(ask))


@part
async def expire_all_on(ask: AdminRequest, name: PulsarName) -> None:
    topic = await opened(ask, name)
    for subscription in list(topic.subscriptions.values()):
        await _expire(ask, topic, subscription)


async def expire_to_position(ask: AdminRequest) -> None:
    """Have a subscription pass over everything up to a message id."""
    topic, subscription = await one_subscription(ask)
    place = message_id(ask.json())
    if place is None:
        raise RestError(412, "the body must hold ledgerId and entryId")
    async with ask.services.groups.moving(topic, subscription):
        subscription.expired += subscription.skip_to(Position(*place))


async def properties(ask: AdminRequest) -> dict[str, str]:
    """Return a subscription's properties."""
    found: dict[str, str] = (await _each(ask, properties_on))[0]
    return found


@of_subscription
async def properties_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> dict[str, str]:
    return dict(subscription.properties)


async def set_properties(ask: AdminRequest) -> None:
    """Replace a subscription's properties."""
    _properties(ask.object())
    await _each(ask, set_properties_on)


@of_subscription
async def set_properties_on(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> None:
    await topic.describe(subscription, _properties(ask.object()))


def _name(ask: AdminRequest) -> str:
    return ask.path["subscription"]


async def _each(ask: AdminRequest, part: Part) -> list[Any]:
    """Return what a part gives for the named partition, or for all that have the subscription.

    Raises ``SubscriptionNotFound`` where none has it.
    """
    answers = (await everywhere(ask, part, found(ask))).values()
    having = [answer for each in answers for answer in each]
    if not having:
        raise SubscriptionNotFound(f"Subscription {_name(ask)} not found")
    return having


async def one_subscription(ask: AdminRequest) -> tuple[PulsarTopic, Subscription]:
    topic = await one(ask)
    if _name(ask) not in topic.subscriptions:
        raise SubscriptionNotFound(f"Subscription {_name(ask)} not found")
    return topic, topic.subscriptions[_name(ask)]


async def _expire(ask: AdminRequest, topic: PulsarTopic, subscription: Subscription) -> None:
    last = await topic.places.last_before(ask.services.clock() - ask.number("seconds") * 1000)
    if last is not None and subscription.cursor.mark_delete_position < last:
        async with ask.services.groups.moving(topic, subscription):
            subscription.expired += subscription.skip_to(last)


async def nth_open(
    topic: PulsarTopic, subscription: Subscription | None, number: int, *, exactly: bool = False
) -> StoredEntry | None:
    """Return the nth entry that is not done with; if there are fewer the last one, or with ``exactly`` None.

    Without a subscription nothing is done with.
    """
    offset, cursor = topic.log.log_start_offset, None
    if subscription is not None:
        subscription.flush_acks()
        cursor = subscription.cursor
        offset = max(await cursor.start_offset(), offset)
    last = None
    while number > 0:
        entries = await topic.log.read(offset, max_bytes=1 << 20)
        if not entries:
            return None if exactly else last
        for entry in entries:
            if cursor is None or not cursor.is_done_with(Position(entry.ledger_id, entry.entry_id)):
                last, number = entry, number - 1
                if number == 0:
                    break
        offset = entries[-1].last_offset + 1
    return last


def message_id(content: Any) -> tuple[int, int] | None:
    """Read a message id as Pulsar's admin sends it; None where there is none."""
    if content is None or content == {}:
        return None
    try:
        return int(content["ledgerId"]), int(content["entryId"])
    except (TypeError, KeyError, ValueError):
        raise RestError(400, "a message id is an object with ledgerId and entryId") from None


def _properties(content: Any) -> dict[str, str]:
    """Read a subscription's properties; raise ``RestError`` (400)."""
    if not isinstance(content, dict) or not all(isinstance(each, str) for each in content.values()):
        raise RestError(400, "a subscription's properties are an object of strings")
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RestError(400, f"a subscription's properties are no Unicode: {error}") from None
    return content


_ROOT = "/persistent/{tenant}/{namespace}/{topic}"
_SUB = f"{_ROOT}/subscription/{{subscription}}"
_TABLE: tuple[tuple[str, str, Callable[[AdminRequest], Awaitable[Any]]], ...] = (
    ("GET", f"{_ROOT}/subscriptions", subscriptions),
    ("PUT", _SUB, create),
    ("DELETE", _SUB, delete),
    ("POST", f"{_SUB}/skip_all", skip_all),
    ("POST", f"{_SUB}/skip/{{count}}", skip),
    ("POST", f"{_SUB}/resetcursor/{{timestamp}}", reset_to_time),
    ("POST", f"{_SUB}/resetcursor", reset_to_position),
    ("POST", f"{_SUB}/expireMessages/{{seconds}}", expire),
    ("POST", f"{_SUB}/expireMessages", expire_to_position),
    ("POST", f"{_ROOT}/all_subscription/expireMessages/{{seconds}}", expire_all),
    ("GET", f"{_SUB}/properties", properties),
    ("PUT", f"{_SUB}/properties", set_properties),
)
ROUTES = tuple(
    RestRoute(
        method, path, endpoint, RequiredLevel.consume if "subscription" in path else RequiredLevel.look_up
    )
    for method, path, endpoint in _TABLE
)
