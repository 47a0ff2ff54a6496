"""One topic: partitions, readers, producers, ledgers, and its configuration with where each value comes from."""

from __future__ import annotations

from itertools import islice
from typing import Any

from magnetar.admin.ledgers_of import shown
from magnetar.admin.plain import plain
from magnetar.auth import Right
from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.slices import sliced
from magnetar.cluster.ownership import NotOwned
from magnetar.console.page import (
    Command,
    ConsolePage,
    Facts,
    kafka_tool,
    magnetar,
    pulsar_admin,
    topic_of,
    whole,
)
from magnetar.console.standings import age_s, standings
from magnetar.console.traffic import Flow, traffic_of
from magnetar.kafka.configs.entries import ConfigEntry, topic_entries
from magnetar.ledger.errors import LedgerError
from magnetar.pulsar.rest.request import AdminRequest
from magnetar.pulsar.rest.stats import consumer_stats, publisher_stats
from magnetar.topics.topic import Topic

PER_PAGE = 100
_MOST_CLIENTS = 200
"""Producers and consumers of each kind that a page shows."""
_MOST_LEDGERS = 500


async def topic_facts(ask: AdminRequest) -> Facts:
    """Return a topic with some of its partitions, its readers, and the clients that are connected.

    Query: ``topic``, ``page`` from 1 of 100 partitions each.
    """
    topic = topic_of(ask, Right.see)
    traffic = traffic_of(ask.services)
    pages = max((topic.partitions + PER_PAGE - 1) // PER_PAGE, 1)
    page = whole(ask, "page", 1, 1, pages)
    indexes = range((page - 1) * PER_PAGE, min(page * PER_PAGE, topic.partitions))
    rows = [await _partition(ask, topic, index) async for index in sliced(indexes)]
    await traffic.refresh()
    for row in rows:
        row |= (traffic.of((topic.topic_id, row["partition"])) or Flow())._asdict()
    return _name(topic) | {
        "id": topic.topic_id.hex(),
        "partitions": topic.partitions,
        "internal": topic.internal,
        "flush": str(ask.services.broker.ledger_policy(topic).flush),
        "format": topic.config.entry_format,
        "properties": dict(topic.properties),
        "page": page,
        "pages": pages,
        "rows": rows,
        "readers": await _readers(ask, topic),
        "kafka_producers": _kafka_producers(ask, topic),
        "pulsar_producers": await _pulsar_producers(ask, topic),
        "pulsar_consumers": await _pulsar_consumers(ask, topic),
        "most": _MOST_CLIENTS,
    }


def _name(topic: Topic) -> Facts:
    return {
        "topic": topic.kafka_name,
        "full": str(topic.name),
        "tenant": topic.name.tenant,
        "namespace": topic.name.namespace,
        "local": topic.name.local,
    }


async def _partition(ask: AdminRequest, topic: Topic, index: int) -> dict[str, Any]:
    """Return a partition as this broker has it; of one that another broker has, only which."""
    broker = ask.services.broker
    row: dict[str, Any] = {"partition": index, "problem": ""}
    row |= dict.fromkeys(("leader", "first", "next", "end", "records", "size", "ledgers"))
    try:
        found = await broker.logs.open_logs.open(topic, index)
    except NotOwned as error:
        row["leader"] = None if error.owner is None else error.owner.node_id
        return row
    except TopicNotFound:
        raise
    except (LedgerError, BrokerError) as error:
        return row | {"leader": broker.cluster.ownership.node_id, "problem": str(error)}
    log = found.log
    ledgers = log.ledgers()
    return row | {
        "leader": broker.cluster.ownership.node_id,
        "first": log.log_start_offset,
        "next": log.high_watermark,
        "end": log.log_end_offset,
        "records": log.high_watermark - log.log_start_offset,
        "size": sum(each.size for each in ledgers),
        "ledgers": len(ledgers),
        "terminated": log.terminated is not None,
    }


async def _readers(ask: AdminRequest, topic: Topic) -> list[dict[str, Any]]:
    found = [each async for each in standings(ask, topic)]
    found.sort(key=lambda each: (-(each.lag or 0), each.name))
    return [
        {
            "name": each.name,
            "protocol": each.protocol,
            "kind": each.kind,
            "state": each.state,
            "members": each.members,
            "lag": each.lag,
            "age_s": await age_s(ask, each),
        }
        async for each in sliced(found[:_MOST_CLIENTS])
    ]


def _kafka_producers(ask: AdminRequest, topic: Topic) -> list[dict[str, Any]]:
    """Return idempotent and transactional producers that open partitions remember; others leave no trace."""
    rows: list[dict[str, Any]] = []
    for each in ask.services.broker.logs.open_logs.of(topic):
        if each.producers is None:
            continue
        opened = each.producers.transactions.open()
        for producer_id, producer in islice(each.producers.active(), _MOST_CLIENTS - len(rows)):
            rows.append(
                {
                    "partition": each.index,
                    "producer_id": producer_id,
                    "epoch": producer.epoch,
                    "last_sequence": producer.batches[-1].last_sequence if producer.batches else None,
                    "last_ms": producer.latest_ms,
                    "open_from": opened.get(producer_id),
                }
            )
        if len(rows) >= _MOST_CLIENTS:
            break
    return rows


async def _pulsar_producers(ask: AdminRequest, topic: Topic) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async for index in sliced(range(topic.partitions)):
        opened = ask.services.topics.opened(topic, index)
        for producer in [] if opened is None else list(opened.producers.by_name.values()):
            if len(rows) >= _MOST_CLIENTS:
                return rows
            rows.append({"partition": index} | publisher_stats(producer))
    return rows


async def _pulsar_consumers(ask: AdminRequest, topic: Topic) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async for index in sliced(range(topic.partitions)):
        opened = ask.services.topics.opened(topic, index)
        for name, subscription in [] if opened is None else list(opened.subscriptions.items()):
            for consumer in list(subscription.consumers):
                if len(rows) >= _MOST_CLIENTS:
                    return rows
                rows.append(
                    {"partition": index, "subscription": name} | consumer_stats(consumer, subscription)
                )
    return rows


def topic_commands(ask: AdminRequest, facts: Facts) -> list[Command]:
    return [
        magnetar("topic", "describe", facts["topic"]),
        kafka_tool(ask, "kafka-topics", "--describe", "--topic", facts["topic"]),
        pulsar_admin(ask, "topics", "partitioned-stats", facts["full"]),
    ]


async def ledgers_facts(ask: AdminRequest) -> Facts:
    """Return the ledgers of a partition, the newest first. Query: ``topic``, ``partition``."""
    topic = topic_of(ask, Right.see)
    index = whole(ask, "partition", 0, 0, topic.partitions - 1)
    found = await ask.services.broker.logs.open_logs.open(topic, index)
    ledgers = found.log.ledgers()
    return _name(topic) | {
        "partition": index,
        "partitions": topic.partitions,
        "count": len(ledgers),
        "ledgers": [plain(shown(each)) async for each in sliced(ledgers[: -_MOST_LEDGERS - 1 : -1])],
    }


def ledgers_commands(ask: AdminRequest, facts: Facts) -> list[Command]:
    full = facts["full"] if facts["partitions"] == 1 else f"{facts['full']}-partition-{facts['partition']}"
    return [
        magnetar("ledger", "list", f"{facts['topic']}-{facts['partition']}"),
        kafka_tool(ask, "kafka-log-dirs", "--describe", "--topic-list", facts["topic"]),
        pulsar_admin(ask, "topics", "stats-internal", full),
    ]


async def configuration_facts(ask: AdminRequest) -> Facts:
    """Return what is in force for a topic: each value, where it comes from, and what it means."""
    topic = topic_of(ask, Right.see_configs)
    entries = topic_entries(ask.services.broker, topic)
    own = [each for each in entries if each.origins[0].source.name == "TOPIC"]
    rest = [each for each in entries if each.origins[0].source.name != "TOPIC"]
    return _name(topic) | {"configs": [_config(each) for each in (*own, *rest)], "own": len(own)}


def _config(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.origins[0].source.name.lower().replace("_", " "),
        "set_as": entry.origins[0].name,
        "others": [
            {"source": each.source.name.lower().replace("_", " "), "value": each.value}
            for each in entry.origins[1:]
        ],
        "doc": entry.doc,
    }


def configuration_commands(ask: AdminRequest, facts: Facts) -> list[Command]:
    return [
        magnetar("config", "show", "--topic", facts["topic"]),
        kafka_tool(
            ask,
            "kafka-configs",
            "--describe",
            "--entity-type",
            "topics",
            "--entity-name",
            facts["topic"],
            "--all",
        ),
        pulsar_admin(ask, "topicPolicies", "get-retention", facts["full"], "--applied"),
    ]


TOPIC = ConsolePage("topic", "Topic", topic_facts, topic_commands, in_menu=False, of_topic=True)
LEDGERS = ConsolePage("ledgers", "Ledgers", ledgers_facts, ledgers_commands, in_menu=False, of_topic=True)
CONFIGURATION = ConsolePage(
    "configuration",
    "Configuration",
    configuration_facts,
    configuration_commands,
    in_menu=False,
    of_topic=True,
)
