"""Pulsar's subscriptions: moved, with a preview; one message passed over; deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid, NotThere
from magnetar.admin.offsets import Spot, resolve
from magnetar.auth import Right, Subscribed
from magnetar.cluster.ownership import NotOwned
from magnetar.console.actions.action import (
    ActionOutcome,
    ConsoleAction,
    Doing,
    FormField,
    no_fields,
    topic_path,
)
from magnetar.console.actions.groups import PLACES, place_fields, spot_of
from magnetar.console.actions.moves import ReaderMove, moved, moves_table
from magnetar.console.page import Command, pulsar_admin
from magnetar.console.rendering import url
from magnetar.ledger.port import Position
from magnetar.pulsar.names import PulsarName, names_of
from magnetar.topics.topic import Topic

_PLACES = tuple(each for each in PLACES if each[0] != "shift")
_KEYS = ("topic", "subscription")


def _allowed(doing: Doing) -> bool:
    return doing.may(Right.consume, Subscribed(doing.topic, doing.needed("subscription")))


def _topic(doing: Doing) -> Topic:
    broker = doing.ask.services.broker
    found = broker.get(doing.kafka_topic)
    if found is None:
        raise NotThere(f"topic {doing.text('topic')} does not exist", "It may have been deleted meanwhile.")
    return found


def _partitions(doing: Doing, topic: Topic) -> list[int]:
    if not doing.text("partition"):
        return list(range(topic.partitions))
    index = doing.number("partition")
    if index >= topic.partitions:
        raise Invalid(f"there is no partition {index}", f"The topic has {topic.partitions}, counted from 0.")
    return [index]


def _path(doing: Doing, topic: Topic, partition: int | None, what: str = "") -> str:
    """Return the address of the subscription at all partitions, or at one."""
    index = partition if topic.partitioned else None
    name = quote(doing.needed("subscription"), safe="")
    return f"{topic_path(topic.name, index)}/subscription/{name}{what}"


async def _fields(doing: Doing) -> Sequence[FormField]:
    return [
        *place_fields(doing, _PLACES),
        FormField("partition", "Only this partition", "number", doing.text("partition"), "all, if empty"),
    ]


async def _moves(doing: Doing, topic: Topic) -> list[ReaderMove]:
    spot = _spot(doing)
    keys = [(topic.kafka_name, index) for index in _partitions(doing, topic)]

    def order(cluster: ClusterAdmin) -> dict[tuple[str, int], int]:
        return resolve(cluster, keys, spot)

    after = await doing.by_kafka(order)
    return [ReaderMove(*key, await _before(doing, topic, key[1]), after[key]) for key in keys]


def _spot(doing: Doing) -> Spot:
    spot = spot_of(doing)
    if spot.kind == "shift":
        raise Invalid("a subscription is not moved by a number of records", "Choose another place.")
    if spot.kind == "offset" and not doing.text("partition"):
        raise Invalid("an offset is of one partition", "Name the partition.")
    return spot


async def _before(doing: Doing, topic: Topic, index: int) -> int | None:
    """Return where the subscription is; None where another broker has the partition."""
    services = doing.ask.services
    name = PulsarName.parse(names_of(topic)[index])
    try:
        opened = await services.topics.get(name, create=False)
    except NotOwned:
        return None
    found = opened.subscriptions.get(doing.needed("subscription"))
    return None if found is None else await services.groups.offset_of(opened, found)


async def _preview(doing: Doing) -> ActionOutcome:
    return await moves_table(doing, await _moves(doing, _topic(doing)))


async def _reset(doing: Doing) -> ActionOutcome:
    topic, spot = _topic(doing), _spot(doing)
    moves = await _moves(doing, topic)
    one = doing.number("partition") if doing.text("partition") else None
    if spot.kind == "offset":
        await _to_offset(doing, topic, moves[0])
    elif spot.kind == "latest":
        await doing.by_rest("POST", _path(doing, topic, one, "/skip_all"))
    else:
        time_ms = spot.value if spot.kind == "time" else 0
        await doing.by_rest("POST", _path(doing, topic, one, f"/resetcursor/{time_ms}"))
    return moved(moves, [("The subscription", _page(doing))])


async def _to_offset(doing: Doing, topic: Topic, move: ReaderMove) -> None:
    opened = await doing.ask.services.broker.logs.open_logs.open(topic, move.partition)
    assert move.after is not None
    entries = await opened.log.read(move.after, max_bytes=1)
    if entries:
        place = Position(entries[0].ledger_id, entries[0].entry_id)
        body = {"ledgerId": place.ledger_id, "entryId": place.entry_id}
    else:
        body = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
    path = _path(doing, topic, move.partition, "/resetcursor")
    await doing.by_rest("POST", path, body=json.dumps(body).encode())


def _page(doing: Doing) -> str:
    return url("subscription", topic=doing.kafka_topic, subscription=doing.needed("subscription"))


def _commands(doing: Doing) -> Sequence[Command]:
    spot, name = _spot(doing), doing.needed("subscription")
    topic = _named(doing)
    if spot.kind == "latest":
        return [pulsar_admin(doing.ask, "topics", "clear-backlog", topic, "-s", name)]
    if spot.kind == "offset":
        return [pulsar_admin(doing.ask, "topics", "reset-cursor", topic, "-s", name, "-m", "LEDGER:ENTRY")]
    time = doing.text("time") if spot.kind == "time" else "0"
    return [pulsar_admin(doing.ask, "topics", "reset-cursor", topic, "-s", name, "-t", time)]


def _named(doing: Doing) -> str:
    topic, partition = _topic(doing), doing.text("partition")
    return f"{topic.name}-partition-{partition}" if topic.partitioned and partition else str(topic.name)


RESET = ConsoleAction(
    "reset-subscription",
    "Reset the subscription",
    _KEYS,
    ("subscription",),
    _allowed,
    _fields,
    _reset,
    _commands,
    "Reset the subscription",
    "Moves where the subscription reads on. A preview says what would be read again or skipped.",
    _preview,
)


async def _skip_fields(doing: Doing) -> Sequence[FormField]:
    needed = _topic(doing).partitioned
    return [FormField("partition", "Partition", "number", doing.text("partition", "0"))] if needed else []


async def _skip(doing: Doing) -> ActionOutcome:
    topic = _topic(doing)
    index = doing.number("partition", 0)
    before = await _before(doing, topic, index)
    await doing.by_rest("POST", _path(doing, topic, index, "/skip/1"))
    after = await _before(doing, topic, index)
    move = ReaderMove(topic.kafka_name, index, before, after)
    return moved([move], [("The subscription", _page(doing))])


def _skip_commands(doing: Doing) -> Sequence[Command]:
    name = doing.needed("subscription")
    return [pulsar_admin(doing.ask, "topics", "skip", _named(doing), "-s", name, "-n", "1")]


SKIP = ConsoleAction(
    "skip-message",
    "Skip one message",
    _KEYS,
    ("subscription",),
    _allowed,
    _skip_fields,
    _skip,
    _skip_commands,
    "Skip it",
    "Passes over the first message that is not acknowledged: a batch of a producer's is one, as Pulsar counts here.",
)


async def _delete(doing: Doing) -> ActionOutcome:
    topic, name = _topic(doing), doing.needed("subscription")
    await doing.by_rest("DELETE", _path(doing, topic, None))
    return ActionOutcome(
        f"Subscription {name} is deleted.", links=[("The topic", url("topic", topic=topic.kafka_name))]
    )


def _delete_commands(doing: Doing) -> Sequence[Command]:
    name = doing.needed("subscription")
    return [pulsar_admin(doing.ask, "topics", "unsubscribe", str(_topic(doing).name), "-s", name)]


DELETE = ConsoleAction(
    "delete-subscription",
    "Delete the subscription",
    _KEYS,
    ("subscription",),
    _allowed,
    no_fields,
    _delete,
    _delete_commands,
    "Delete the subscription",
    "Forgets the subscription and what it has acknowledged. Its consumers must be closed first.",
    confirms="subscription",
)
