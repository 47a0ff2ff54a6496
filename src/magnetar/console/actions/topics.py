"""Topics: made, configured, compacted, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.admin import configs, topics
from magnetar.admin.configs import ResourceKind
from magnetar.admin.errors import Invalid, NotThere
from magnetar.auth import Right
from magnetar.auth.rights import Tenant
from magnetar.base.errors import InvalidTopic
from magnetar.console.actions.action import (
    ActionOutcome,
    ConsoleAction,
    Doing,
    FormField,
    no_fields,
    topic_path,
)
from magnetar.console.page import Command, kafka_tool, magnetar, pulsar_admin
from magnetar.console.rendering import url
from magnetar.kafka.configs.entries import topic_entries
from magnetar.topics.topic import Topic

_MOST_PARTITIONS = 10_000


def _page(doing: Doing, page: str = "topic") -> tuple[str, str]:
    return "The topic", url(page, topic=doing.kafka_topic)


def _found(doing: Doing) -> Topic:
    found = doing.ask.services.broker.get(doing.kafka_topic)
    if found is None:
        raise NotThere(f"topic {doing.text('topic')} does not exist", "It may have been deleted meanwhile.")
    return found


# Created.


def _may_create(doing: Doing) -> bool:
    if doing.text("name"):
        try:
            name = doing.ask.services.broker.naming.parse(doing.text("name"))
        except InvalidTopic:
            return True  # what carries it out says what is wrong with the name
        return doing.may(Right.create, name) or doing.may(Right.create_on_cluster)
    tenants = doing.ask.services.broker.namespaces.tenants()
    return doing.may(Right.create_on_cluster) or any(
        doing.may(Right.administer, Tenant(each)) for each in tenants
    )


async def _create_fields(doing: Doing) -> Sequence[FormField]:
    return [
        FormField(
            "name", "Name", required=True, help="short, or tenant/namespace/name as persistent://… has it"
        ),
        FormField("partitions", "Partitions", "number", "1", "a topic can get more of them, never fewer"),
        FormField("configs", "Configuration", "area", help="NAME=VALUE, one a line; empty for the defaults"),
    ]


def _configs(doing: Doing) -> dict[str, str | None]:
    lines = [line.strip() for line in doing.text("configs").splitlines() if line.strip()]
    return configs.parse_configs(lines)


async def _create(doing: Doing) -> ActionOutcome:
    name, count, given = doing.needed("name"), doing.number("partitions", 1), _configs(doing)
    if not 0 < count <= _MOST_PARTITIONS:
        raise Invalid(f"a topic cannot have {count} partitions", f"Choose 1 to {_MOST_PARTITIONS:,}.")
    await doing.by_kafka(lambda cluster: topics.make_topic(cluster, name, count, given))
    return ActionOutcome(f"Topic {name} is there.", links=[("The topic", url("topic", topic=name))])


def _create_commands(doing: Doing) -> Sequence[Command]:
    name, count = doing.text("name", "TOPIC"), doing.text("partitions", "1")
    own = [word for each, value in _configs(doing).items() for word in ("--config", f"{each}={value}")]
    full = str(doing.ask.services.broker.naming.parse(name))
    return [
        magnetar("topic", "create", name, "--partitions", count, *own),
        kafka_tool(doing.ask, "kafka-topics", "--create", "--topic", name, "--partitions", count, *own),
        pulsar_admin(doing.ask, "topics", "create-partitioned-topic", full, "-p", count),
    ]


CREATE = ConsoleAction(
    "create-topic",
    "Create a topic",
    (),
    ("topics", ""),
    _may_create,
    _create_fields,
    _create,
    _create_commands,
    "Create the topic",
)


# Configured.


async def _config_fields(doing: Doing) -> Sequence[FormField]:
    entries = topic_entries(doing.ask.services.broker, _found(doing))
    name = doing.text("config")
    chosen = next((each for each in entries if each.name == name), None)
    return [
        FormField(
            "config", "Configuration", "select", name, options=[(each.name, each.name) for each in entries]
        ),
        FormField(
            "value",
            "Value",
            value="" if chosen is None else chosen.value or "",
            help="empty returns it to what it follows" if chosen is None else chosen.doc,
        ),
    ]


def _change(doing: Doing) -> tuple[str, str | None]:
    return doing.needed("config"), doing.text("value") or None


async def _config_preview(doing: Doing) -> ActionOutcome:
    name, value = _change(doing)
    topic = doing.kafka_topic
    await doing.by_kafka(
        lambda cluster: configs.alter_configs(cluster, ResourceKind.TOPIC, topic, {name: value}, dry_run=True)
    )
    entry = next(
        each for each in topic_entries(doing.ask.services.broker, _found(doing)) if each.name == name
    )
    to = f"to {value}" if value is not None else "back to what the namespace or the broker says"
    return ActionOutcome(f"{name} would go from {entry.value} {to}. {entry.doc}")


async def _configure(doing: Doing) -> ActionOutcome:
    name, value = _change(doing)
    topic = doing.kafka_topic
    now = await doing.by_kafka(
        lambda cluster: configs.alter_configs(cluster, ResourceKind.TOPIC, topic, {name: value})
    )
    row = next(each for each in now.configs if each.name == name)
    return ActionOutcome(f"{name} is {row.value} now ({row.source}).", links=[_page(doing, "configuration")])


def _config_commands(doing: Doing) -> Sequence[Command]:
    name, value = doing.text("config", "NAME"), doing.text("value")
    tool = ["--delete-config", name] if not value else ["--add-config", f"{name}={value}"]
    own = ["--unset", name] if not value else ["--config", f"{name}={value}"]
    where = ("--entity-type", "topics", "--entity-name", doing.kafka_topic)
    return [
        magnetar("topic", "alter", doing.kafka_topic, *own),
        kafka_tool(doing.ask, "kafka-configs", "--alter", *where, *tool),
    ]


CONFIGURE = ConsoleAction(
    "configure-topic",
    "Change the configuration",
    ("topic",),
    ("configuration",),
    lambda doing: doing.may(Right.alter_configs, doing.topic),
    _config_fields,
    _configure,
    _config_commands,
    "Change it",
    "One value of the topic's own. The preview says what it means, and whether the broker takes it.",
    _config_preview,
)


# Compacted, and deleted.


async def _compact(doing: Doing) -> ActionOutcome:
    await doing.by_rest("PUT", f"{topic_path(_found(doing).name)}/compaction")
    return ActionOutcome("The compaction has begun; it goes on in the background.", links=[_page(doing)])


def _compact_commands(doing: Doing) -> Sequence[Command]:
    return [
        magnetar("compact", doing.kafka_topic),
        pulsar_admin(doing.ask, "topics", "compact", str(doing.topic)),
    ]


COMPACT = ConsoleAction(
    "compact-topic",
    "Compact",
    ("topic",),
    ("topic",),
    lambda doing: (
        doing.may(Right.administer, Tenant(doing.topic.tenant)) and doing.may(Right.alter, doing.topic)
    ),
    no_fields,
    _compact,
    _compact_commands,
    "Compact the topic",
    "Keeps the newest record of each key for readers that read compacted, and for topics with cleanup.policy=compact "
    "removes the older ones. Records without a key are left out.",
)


async def _delete(doing: Doing) -> ActionOutcome:
    name = doing.kafka_topic
    await doing.by_kafka(lambda cluster: topics.delete_topics(cluster, [name]))
    return ActionOutcome(f"Topic {name} is deleted with all that it held.", links=[("Topics", url("topics"))])


def _delete_commands(doing: Doing) -> Sequence[Command]:
    return [
        magnetar("topic", "delete", doing.kafka_topic),
        kafka_tool(doing.ask, "kafka-topics", "--delete", "--topic", doing.kafka_topic),
        pulsar_admin(doing.ask, "topics", "delete-partitioned-topic", str(doing.topic)),
    ]


def _is_own(facts: Mapping[str, Any]) -> bool:
    return not facts.get("internal")


DELETE = ConsoleAction(
    "delete-topic",
    "Delete the topic",
    ("topic",),
    ("topic",),
    lambda doing: doing.may(Right.delete, doing.topic),
    no_fields,
    _delete,
    _delete_commands,
    "Delete the topic",
    "Deletes the topic with all its records, and what groups and subscriptions have read of it. Nothing brings it back "
    "but a backup.",
    confirms="topic",
    fits=_is_own,
)
