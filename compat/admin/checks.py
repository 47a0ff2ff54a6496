"""What an administrator does with pulsar-admin, and what must come of it. Each check is given the tool and the
addresses of the broker; it raises when something is not so."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from waiting import same, until

from admin.tools import PulsarAdmin, Refused, parsed

Addresses = Mapping[str, str]
SECONDS = 30
MESSAGES = 10


def refused(call: Callable[[], object], word: str) -> None:
    """Raise unless the call is refused with an error that has this word."""
    try:
        call()
    except Refused as error:
        if word.lower() not in str(error).lower():
            raise
    else:
        raise AssertionError(f"not refused with {word}")


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def namespace_of(tool: PulsarAdmin) -> str:
    """A fresh tenant with a namespace."""
    tenant = fresh("tenant")
    tool("tenants", "create", tenant, "--allowed-clusters", "standalone")
    tool("namespaces", "create", f"{tenant}/ns", "--clusters", "standalone")
    return f"{tenant}/ns"


def sent(addresses: Addresses, topic: str) -> list[str]:
    """Send ten messages, each an entry of its own; give their ids as ledger:entry."""
    import logging

    import pulsar

    quiet = logging.getLogger("quiet")
    quiet.setLevel(logging.CRITICAL)
    client = pulsar.Client(f"pulsar://{addresses['pulsar']}", logger=quiet)
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"message %d" % n, properties={"n": str(n)}) for n in range(MESSAGES)]
    client.close()
    return [f"{each.ledger_id()}:{each.entry_id()}" for each in ids]


def topic_of(tool: PulsarAdmin) -> str:
    name = f"persistent://{namespace_of(tool)}/topic"
    tool("topics", "create", name)
    return name


def backlog(tool: PulsarAdmin, topic: str, name: str) -> int:
    subscriptions = parsed(tool("topics", "stats", topic))["subscriptions"]
    return int(subscriptions[name]["msgBacklog"])


# ---- clusters, tenants, namespaces ----


def clusters(tool: PulsarAdmin, addresses: Addresses) -> None:
    """clusters and brokers: list, get, health check"""
    assert "standalone" in tool("clusters", "list")
    cluster = parsed(tool("clusters", "get", "standalone"))
    assert cluster["brokerServiceUrl"].startswith("pulsar://"), cluster
    assert tool("brokers", "list", "standalone"), "no broker"
    same(tool("brokers", "healthcheck").splitlines()[-1], "ok", "health")
    refused(lambda: tool("clusters", "get", "elsewhere"), "not")


def tenants(tool: PulsarAdmin, addresses: Addresses) -> None:
    """tenants: create, list, get, update, delete; one that exists, one that does not"""
    name = fresh("tenant")
    tool("tenants", "create", name, "--admin-roles", "ann", "--allowed-clusters", "standalone")
    assert name in tool("tenants", "list")
    same(
        parsed(tool("tenants", "get", name)),
        {"adminRoles": ["ann"], "allowedClusters": ["standalone"]},
        "tenant",
    )
    refused(lambda: tool("tenants", "create", name, "--allowed-clusters", "standalone"), "already exist")
    tool("tenants", "update", name, "--admin-roles", "ben", "--allowed-clusters", "standalone")
    same(parsed(tool("tenants", "get", name))["adminRoles"], ["ben"], "roles")
    tool("tenants", "delete", name)
    assert name not in tool("tenants", "list")
    refused(lambda: tool("tenants", "get", name), "not exist")
    refused(lambda: tool("tenants", "delete", name), "")


def namespaces(tool: PulsarAdmin, addresses: Addresses) -> None:
    """namespaces: create, list, policies, delete; one that is not empty is not deleted"""
    namespace = namespace_of(tool)
    tenant = namespace.split("/")[0]
    same(tool("namespaces", "list", tenant), namespace, "namespaces")
    policies = parsed(tool("namespaces", "policies", namespace))
    same(policies["replication_clusters"], ["standalone"], "clusters")
    refused(lambda: tool("namespaces", "create", namespace), "already exist")
    refused(lambda: tool("namespaces", "create", "nobody-here/ns"), "not exist")
    topic = f"persistent://{namespace}/full"
    tool("topics", "create", topic)
    same(tool("namespaces", "topics", namespace), topic, "topics")
    refused(lambda: tool("namespaces", "delete", namespace), "empty")
    tool("topics", "delete", topic)
    tool("namespaces", "delete", namespace)
    same(tool("namespaces", "list", tenant), "", "namespaces")
    refused(lambda: tool("namespaces", "policies", namespace), "not exist")


def policies(tool: PulsarAdmin, addresses: Addresses) -> None:
    """policies of a namespace: retention, TTL, deduplication, backlog quota, schema compatibility"""
    namespace = namespace_of(tool)
    tool("namespaces", "set-retention", namespace, "--size", "100M", "--time", "3h")
    same(
        parsed(tool("namespaces", "get-retention", namespace)),
        {"retentionTimeInMinutes": 180, "retentionSizeInMB": 100},
        "retention",
    )
    tool("namespaces", "set-message-ttl", namespace, "--messageTTL", "60")
    same(tool("namespaces", "get-message-ttl", namespace), "60", "TTL")
    tool("namespaces", "remove-message-ttl", namespace)
    same(tool("namespaces", "get-message-ttl", namespace), "null", "no TTL")
    tool("namespaces", "set-deduplication", namespace, "--enable")
    same(tool("namespaces", "get-deduplication", namespace), "true", "deduplication")
    tool("namespaces", "set-backlog-quota", namespace, "--limit", "50M", "--policy", "producer_exception")
    quota = parsed(tool("namespaces", "get-backlog-quotas", namespace))
    assert "producer_exception" in json.dumps(quota), quota
    tool("namespaces", "set-schema-compatibility-strategy", namespace, "--compatibility", "FULL")
    same(tool("namespaces", "get-schema-compatibility-strategy", namespace), "FULL", "strategy")
    tool("namespaces", "set-property", "--key", "colour", "--value", "red", namespace)
    assert "red" in tool("namespaces", "get-properties", namespace)


def granted(printed: str) -> dict[str, set[str]]:
    """Roles and their actions, as pulsar-admin prints them: ``ann    [produce, consume]``."""
    lines = (line.split(None, 1) for line in printed.splitlines())
    return {role: set(actions.strip("[]").split(", ")) for role, actions in lines}


def permissions(tool: PulsarAdmin, addresses: Addresses) -> None:
    """permissions of a namespace and of a topic: grant, list, revoke"""
    topic = topic_of(tool)
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]
    tool("namespaces", "grant-permission", namespace, "--role", "ann", "--actions", "produce,consume")
    same(granted(tool("namespaces", "permissions", namespace)), {"ann": {"consume", "produce"}}, "granted")
    tool("topics", "grant-permission", topic, "--role", "ben", "--actions", "consume")
    same(granted(tool("topics", "permissions", topic))["ben"], {"consume"}, "granted on the topic")
    tool("topics", "revoke-permission", topic, "--role", "ben")
    assert "ben" not in tool("topics", "permissions", topic)
    tool("namespaces", "revoke-permission", namespace, "--role", "ann")
    assert "ann" not in tool("namespaces", "permissions", namespace)


# ---- topics ----


def topics(tool: PulsarAdmin, addresses: Addresses) -> None:
    """topics: create, list, look up, stats, delete; one that exists, one that does not"""
    topic = topic_of(tool)
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]
    same(tool("topics", "list", namespace), topic, "topics")
    refused(lambda: tool("topics", "create", topic), "already exist")
    assert "pulsar://" in tool("topics", "lookup", topic)
    assert tool("topics", "bundle-range", topic).startswith("0x")
    stats = parsed(tool("topics", "stats", topic))
    same((stats["msgInCounter"], stats["subscriptions"], stats["publishers"]), (0, {}, []), "stats")
    internal = parsed(tool("topics", "stats-internal", topic))
    same(internal["numberOfEntries"], 0, "internal stats")
    ids = sent(addresses, topic)
    stats = parsed(tool("topics", "stats", topic))
    same(stats["msgInCounter"], MESSAGES, "messages")
    internal = parsed(tool("topics", "stats-internal", topic))
    same(internal["lastConfirmedEntry"], ids[-1], "last entry")
    same(internal["numberOfEntries"], MESSAGES, "entries")
    tool("topics", "unload", topic)
    same(parsed(tool("topics", "stats-internal", topic))["numberOfEntries"], MESSAGES, "entries after unload")
    tool("topics", "delete", topic)
    same(tool("topics", "list", namespace), "", "topics")
    assert "not found" in tool("topics", "delete", topic)  # it says so, and ends well all the same
    refused(lambda: tool("topics", "stats", topic), "not found")


def partitioned(tool: PulsarAdmin, addresses: Addresses) -> None:
    """partitioned topics: create, list, metadata, add partitions, stats, delete"""
    namespace = namespace_of(tool)
    topic = f"persistent://{namespace}/parts"
    tool("topics", "create-partitioned-topic", topic, "--partitions", "3")
    same(tool("topics", "list-partitioned-topics", namespace), topic, "partitioned topics")
    metadata = parsed(tool("topics", "get-partitioned-topic-metadata", topic))
    same(metadata["partitions"], 3, "partitions")
    same(
        sorted(tool("topics", "list", namespace).split()),
        [f"{topic}-partition-{n}" for n in range(3)],
        "topics",
    )
    tool("topics", "update-partitioned-topic", topic, "--partitions", "5")
    same(parsed(tool("topics", "get-partitioned-topic-metadata", topic))["partitions"], 5, "more partitions")
    refused(lambda: tool("topics", "update-partitioned-topic", topic, "--partitions", "4"), "")
    refused(lambda: tool("topics", "create-partitioned-topic", topic, "--partitions", "2"), "already exist")
    sent(addresses, topic)
    stats = parsed(tool("topics", "partitioned-stats", topic, "--per-partition"))
    same((stats["msgInCounter"], len(stats["partitions"])), (MESSAGES, 5), "stats")
    tool("topics", "delete-partitioned-topic", topic)
    same(tool("topics", "list-partitioned-topics", namespace), "", "partitioned topics")


def topic_policies(tool: PulsarAdmin, addresses: Addresses) -> None:
    """policies of one topic: retention, TTL, set, shown and removed"""
    topic = topic_of(tool)
    tool("topicPolicies", "set-retention", topic, "--size", "20G", "--time", "1h")

    def retention() -> Any:
        return parsed(tool("topicPolicies", "get-retention", topic) or "null")

    wanted = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 20480}
    until("the policy to be in force", lambda: retention() == wanted)
    tool("topicPolicies", "remove-retention", topic)
    until("the policy to be gone", lambda: retention() in (None, "null", ""))


def schemas(tool: PulsarAdmin, addresses: Addresses) -> None:
    """schemas: upload, get, a second version"""
    topic = topic_of(tool)
    fields = [{"name": "a", "type": "int"}]
    for number in range(2):
        record = {"type": "record", "name": "R", "fields": fields[: number + 1]}
        payload = {"type": "AVRO", "schema": json.dumps(record), "properties": {}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(payload, file)
            file.flush()
            tool("schemas", "upload", topic, "--filename", file.name)
        got = parsed(tool("schemas", "get", topic))["schemaInfo"]
        same((got["type"], len(got["schema"]["fields"])), ("AVRO", number + 1), "schema")
        fields.append({"name": "b", "type": ["null", "int"], "default": None})  # type: ignore[dict-item]
    first = parsed(tool("schemas", "get", topic, "--version", "0"))
    same(len(first["schema"]["fields"]), 1, "first version")


# ---- subscriptions ----


def subscriptions(tool: PulsarAdmin, addresses: Addresses) -> None:
    """subscriptions: create, list, backlog, skip, clear, unsubscribe"""
    topic = topic_of(tool)
    sent(addresses, topic)
    tool("topics", "create-subscription", topic, "--subscription", "first", "--messageId", "earliest")
    tool("topics", "create-subscription", topic, "--subscription", "last", "--messageId", "latest")
    same(sorted(tool("topics", "subscriptions", topic).split()), ["first", "last"], "subscriptions")
    refused(lambda: tool("topics", "create-subscription", topic, "--subscription", "first"), "already exist")
    same((backlog(tool, topic, "first"), backlog(tool, topic, "last")), (MESSAGES, 0), "backlogs")
    tool("topics", "skip", topic, "--subscription", "first", "--count", "3")
    same(backlog(tool, topic, "first"), MESSAGES - 3, "after skipping 3")
    tool("topics", "clear-backlog", topic, "--subscription", "first")
    same(backlog(tool, topic, "first"), 0, "after clearing")
    tool("topics", "unsubscribe", topic, "--subscription", "last")
    same(tool("topics", "subscriptions", topic), "first", "subscriptions")
    refused(lambda: tool("topics", "skip", topic, "--subscription", "last", "--count", "1"), "not found")
    refused(lambda: tool("topics", "unsubscribe", topic, "--subscription", "last"), "not found")


def reset(tool: PulsarAdmin, addresses: Addresses) -> None:
    """cursors: reset to a time and to a message id, expire"""
    topic = topic_of(tool)
    ids = sent(addresses, topic)
    tool("topics", "create-subscription", topic, "--subscription", "sub", "--messageId", "latest")
    tool("topics", "reset-cursor", topic, "--subscription", "sub", "--time", "1h")
    same(backlog(tool, topic, "sub"), MESSAGES, "reset by time")
    # Without --exclude, the message of that id is the next one.
    tool("topics", "reset-cursor", topic, "--subscription", "sub", "--messageId", ids[6])
    same(backlog(tool, topic, "sub"), MESSAGES - 6, "reset by id")
    tool("topics", "reset-cursor", topic, "--subscription", "sub", "--messageId", "earliest")
    same(backlog(tool, topic, "sub"), MESSAGES, "reset to earliest")
    time.sleep(2.1)
    tool("topics", "expire-messages", topic, "--subscription", "sub", "--expireTime", "1")
    until("messages to expire", lambda: backlog(tool, topic, "sub") == 0)


def inspect(tool: PulsarAdmin, addresses: Addresses) -> None:
    """messages: peek, examine, get by id, last message id, backlog size"""
    topic = topic_of(tool)
    ids = sent(addresses, topic)
    tool("topics", "create-subscription", topic, "--subscription", "sub", "--messageId", "earliest")
    peeked = tool("topics", "peek-messages", topic, "--subscription", "sub", "--count", "2")
    assert "message 0" in peeked, peeked[-300:]
    assert ids[1] in peeked, peeked[-300:]
    same(backlog(tool, topic, "sub"), MESSAGES, "peeking takes nothing")
    ledger, entry = ids[4].split(":")
    assert "message 4" in tool("topics", "get-message-by-id", topic, "--ledgerId", ledger, "--entryId", entry)
    position = ("--initialPosition", "earliest", "--messagePosition", "3")
    assert "message 2" in tool("topics", "examine-messages", topic, *position)
    last = parsed(tool("topics", "last-message-id", topic))
    same(f"{last['ledgerId']}:{last['entryId']}", ids[-1], "last message id")
    assert int(tool("topics", "get-backlog-size", topic, "--messageId", ids[0])) > 0


def kafka_group(tool: PulsarAdmin, addresses: Addresses) -> None:
    """a Kafka group: listed with its backlog, skipped, reset to the beginning, deleted"""
    from confluent_kafka import Consumer, TopicPartition

    from admin.kafka import committed, produced

    topic, group = fresh("group-topic"), fresh("group")
    full = f"persistent://public/default/{topic}"
    produced(addresses["kafka"], topic, MESSAGES)
    consumer = Consumer({"bootstrap.servers": addresses["kafka"], "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()
    until("the group to be listed", lambda: group in tool("topics", "subscriptions", full).split())
    until("its backlog", lambda: backlog(tool, full, group) == MESSAGES - 4)
    tool("topics", "skip", full, "--subscription", group, "--count", "2")
    until("the skip", lambda: committed(addresses["kafka"], group, topic) == 6)
    tool("topics", "reset-cursor", full, "--subscription", group, "--time", "1h")
    until("the reset", lambda: committed(addresses["kafka"], group, topic) == 0)
    tool("topics", "unsubscribe", full, "--subscription", group)
    until("the end", lambda: committed(addresses["kafka"], group, topic) < 0)
    until("it to be unlisted", lambda: group not in tool("topics", "subscriptions", full).split())


CHECKS = (
    clusters,
    tenants,
    namespaces,
    policies,
    permissions,
    topics,
    partitioned,
    topic_policies,
    schemas,
    subscriptions,
    reset,
    inspect,
)
ONLY_OURS = (kafka_group,)
