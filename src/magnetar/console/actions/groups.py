"""Groups of Kafka clients: moved, with a preview of what is read again or passed over, and deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.admin import groups
from magnetar.admin.errors import Invalid
from magnetar.admin.groups import SeekRow, Sought
from magnetar.admin.offsets import Spot, parse_time
from magnetar.auth import Right
from magnetar.auth.rights import Group
from magnetar.console.actions.action import ActionOutcome, ConsoleAction, Doing, FormField, no_fields
from magnetar.console.actions.moves import ReaderMove, moved, moves_table
from magnetar.console.page import Command, kafka_tool, magnetar
from magnetar.console.rendering import url

PLACES = (
    ("earliest", "the earliest record"),
    ("latest", "the end: only what comes from now on"),
    ("time", "the first record of a time"),
    ("offset", "an offset"),
    ("shift", "so many records on, or back"),
)


def group_of(doing: Doing) -> Group:
    """Return the group that a form is about, for rights."""
    naming = doing.ask.services.broker.naming
    return Group(doing.needed("group"), f"{naming.tenant}/{naming.namespace}")


def place_fields(doing: Doing, places: Sequence[tuple[str, str]]) -> list[FormField]:
    """Return the fields by which a reader says where to."""
    return [
        FormField("to", "Move it to", "select", doing.text("to", "earliest"), options=places),
        FormField(
            "time", "Time", value=doing.text("time"), help="UTC, as 2026-11-30T12:00:00Z, or ms since 1970"
        ),
        FormField(
            "offset",
            "Offset, or how many records",
            value=doing.text("offset"),
            help="with a minus: back; an offset is one of one partition",
        ),
    ]


def spot_of(doing: Doing) -> Spot:
    """Return where a form says; raise `Invalid`."""
    kind = doing.text("to", "earliest")
    if kind in ("earliest", "latest"):
        return Spot(kind)
    if kind == "time":
        return Spot("time", parse_time(_in_utc(doing.needed("time"))))
    if kind in ("offset", "shift"):
        text = doing.needed("offset")
        digits = text.removeprefix("-") if kind == "shift" else text
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
            raise Invalid(f"{text[:40]!r} is no whole number", "Write digits, for records back with a minus.")
        return Spot(kind, int(text))
    raise Invalid(f"{kind[:40]!r} is no place", "Choose one of the list.")


def _in_utc(text: str) -> str:
    """Return a time as UTC unless it says otherwise: a browser's clock is not the broker's."""
    has_zone = text.endswith(("Z", "z")) or "+" in text[10:] or "-" in text[10:]
    return text if text.isdecimal() or has_zone else f"{text}Z"


async def _fields(doing: Doing) -> Sequence[FormField]:
    return [
        *place_fields(doing, PLACES),
        FormField(
            "topic", "Only this topic", value=doing.text("topic"), help="all that it has committed, if empty"
        ),
        FormField("partition", "Only this partition", "number", doing.text("partition")),
    ]


async def _sought(doing: Doing, *, dry_run: bool) -> Sought:
    topics = [doing.kafka_topic] if doing.text("topic") else []
    partitions = [doing.number("partition")] if doing.text("partition") else None
    spot = spot_of(doing)
    if spot.kind == "offset" and partitions is None:
        raise Invalid("an offset is of one partition", "Name the topic and the partition.")
    group = doing.needed("group")
    return await doing.by_kafka(
        lambda cluster: groups.seek(cluster, group, topics, partitions, spot, dry_run=dry_run)
    )


def _moves(rows: Sequence[SeekRow]) -> list[ReaderMove]:
    return [ReaderMove(row.topic, row.partition, row.before, row.after) for row in rows]


async def _preview(doing: Doing) -> ActionOutcome:
    sought = await _sought(doing, dry_run=True)
    return await moves_table(doing, _moves(sought.partitions))


async def _reset(doing: Doing) -> ActionOutcome:
    sought = await _sought(doing, dry_run=False)
    group = doing.needed("group")
    return moved(_moves(sought.partitions), [("The group", url("group", group=group))])


def _commands(doing: Doing) -> Sequence[Command]:
    group, spot = doing.needed("group"), spot_of(doing)
    topic, partition = doing.text("topic"), doing.text("partition")
    where = [*(["--topic", topic] if topic else []), *(["--partition", partition] if partition else [])]
    own = {"earliest": "earliest", "latest": "latest", "time": f"s@{spot.value}", "offset": str(spot.value)}
    to = ["--shift", str(spot.value)] if spot.kind == "shift" else ["--to", own[spot.kind]]
    tool = {
        "earliest": ["--to-earliest"],
        "latest": ["--to-latest"],
        "time": ["--to-datetime", doing.text("time")],
        "offset": ["--to-offset", str(spot.value)],
        "shift": ["--shift-by", str(spot.value)],
    }[spot.kind]
    only = f"{topic}:{partition}" if partition else topic
    what = ["--topic", only] if topic else ["--all-topics"]
    return [
        magnetar("group", "reset-offsets", group, *to, *where),
        kafka_tool(
            doing.ask, "kafka-consumer-groups", "--reset-offsets", "--group", group, *what, *tool, "--execute"
        ),
    ]


def _is_of_kafka(facts: Mapping[str, Any]) -> bool:
    return facts.get("kind") in (None, "classic", "consumer")


RESET = ConsoleAction(
    "reset-group",
    "Reset offsets",
    ("group",),
    ("group",),
    lambda doing: doing.may(Right.use, group_of(doing)),
    _fields,
    _reset,
    _commands,
    "Reset the group",
    "Moves where the group reads on. Its consumers must be stopped first. A preview says what would be read "
    "again or skipped; one record of a partition is skipped by moving it by 1.",
    _preview,
    fits=_is_of_kafka,
)


async def _delete(doing: Doing) -> ActionOutcome:
    name = doing.needed("group")
    await doing.by_kafka(lambda cluster: groups.delete_groups(cluster, [name]))
    return ActionOutcome(
        f"Group {name} is deleted, with all that it had committed.", links=[("Groups", url("groups"))]
    )


def _delete_commands(doing: Doing) -> Sequence[Command]:
    group = doing.needed("group")
    return [
        magnetar("group", "delete", group),
        kafka_tool(doing.ask, "kafka-consumer-groups", "--delete", "--group", group),
    ]


DELETE = ConsoleAction(
    "delete-group",
    "Delete the group",
    ("group",),
    ("group",),
    lambda doing: doing.may(Right.delete, group_of(doing)),
    no_fields,
    _delete,
    _delete_commands,
    "Delete the group",
    "Forgets the group and all that it has committed. Its consumers must be stopped; should they come back, they "
    "begin where auto.offset.reset says.",
    confirms="group",
)
