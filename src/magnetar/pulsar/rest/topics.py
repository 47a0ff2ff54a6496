"""Topics: made, grown, deleted, listed, with their grants and the few policies that a topic has of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.base.errors import TooManyTopics, TopicNotFound
from magnetar.ledger.errors import LedgerClosed
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.non_persistent import check_namespace
from magnetar.pulsar.rest.checks import exceeds
from magnetar.pulsar.rest.everywhere import (
    check_not_elsewhere,
    everywhere,
    opened,
    part,
    part_without_opening,
)
from magnetar.pulsar.rest.namespaces import as_json, topics
from magnetar.pulsar.rest.request import (
    AdminRequest,
    Endpoint,
    Reply,
    RequiredLevel,
    RestError,
    RestRoute,
    address_of,
    scalar,
)
from magnetar.pulsar.topic import PulsarTopic
from magnetar.topics.limits import Quota
from magnetar.topics.names import TopicName
from magnetar.topics.topic import MAX_NEW_PARTITIONS, Topic
from magnetar.topics.topic_config import CONFIGS

_MINUTE_MS, _MB = 60_000, 1 << 20


def found(ask: AdminRequest) -> Topic:
    """Return the topic that the path names, with or without a partition; raise ``TopicNotFound``."""
    name = ask.topic
    topic = ask.services.topics.find(name)
    if topic is None or (name.partition is not None and name.partition >= topic.partitions):
        raise TopicNotFound(f"Topic {name} not found")
    return topic


async def one(ask: AdminRequest) -> PulsarTopic:
    """Return the partition that the path names; of a topic with several it must name one."""
    topic = found(ask)
    if ask.topic.partition is None and topic.partitions > 1:
        raise RestError(405, f"{topic.name} has {topic.partitions} partitions: name one of them")
    return await ask.services.topics.get(ask.topic, create=False)


async def partitioned_topics(ask: AdminRequest) -> list[str]:
    """List a namespace's topics that are partitioned."""
    ask.services.broker.namespaces.policies(ask.namespace)
    return sorted(
        str(topic.name)
        for topic in ask.services.broker.topics()
        if topic.name.namespace_name == ask.namespace and topic.partitioned and not topic.internal
    )


async def partitions(ask: AdminRequest) -> dict[str, Any]:
    """Tell how many partitions a topic has; 0 for one that is not partitioned."""
    if ask.services.transactions is not None and ask.topic.finds_coordinator:
        count = ask.services.transactions.coordinator.coordinators
        return {"partitions": count if ask.topic.partition is None else 0}
    topic = ask.services.topics.find(ask.topic)
    if topic is None and not ask.topic.persistent:
        return {"partitions": 0}  # made when somebody uses it
    if topic is None and ask.flag("checkAllowAutoCreation") and not ask.is_of_browser:
        check_namespace(ask.services.broker, ask.topic)
        topic = await ask.services.broker.auto_create(str(ask.topic.topic))
    if topic is None:
        raise TopicNotFound(f"Topic {ask.topic} not found")
    return {"partitions": topic.partitions if topic.partitioned and ask.topic.partition is None else 0}


async def create_partitioned(ask: AdminRequest) -> None:
    """Make a topic with so many partitions."""
    number = number_of(ask)
    refuse_too_many(number)
    body = ask.json()
    await _create(ask, number, body.get("properties") if isinstance(body, dict) else None, partitioned=True)


def number_of(ask: AdminRequest) -> int:
    """Return the number of partitions in the body; raise ``RestError`` (406)."""
    body = ask.json()
    wanted = body.get("partitions") if isinstance(body, dict) else body  # newer clients send properties along
    number = scalar(wanted, int)
    if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
        raise RestError(406, "Number of partitions should be greater than 0")
    return number


def refuse_too_many(more: int) -> None:
    """Raise ``RestError`` (406) for more partitions than one request may make."""
    if more > MAX_NEW_PARTITIONS:
        raise RestError(
            406, f"Number of partitions to make should be less than or equal to {MAX_NEW_PARTITIONS}"
        )


async def create(ask: AdminRequest) -> None:
    """Make a topic without partitions."""
    if ask.topic.partition is not None:
        topic = ask.services.topics.find(ask.topic)
        if topic is not None and ask.topic.partition < topic.partitions:
            raise RestError(409, "This topic already exists")
    try:
        body = ask.json()
        await _create(ask, 1, body if isinstance(body, dict) else None)  # older clients send a number
    except TooManyTopics as error:
        raise RestError(409, str(error)) from None


async def _create(ask: AdminRequest, number: int, said: Any, *, partitioned: bool = False) -> None:
    """Make a topic, of which so much is ``said``: None for nothing."""
    broker = ask.services.broker
    configs, properties = _told_apart({} if said is None else said)
    broker.namespaces.policies(ask.namespace)
    if ask.topic.partition is not None:
        raise RestError(412, "names ending with -partition-N belong to the partitions of a topic")
    if broker.get(str(ask.topic.topic)) is not None:
        raise RestError(409, "This topic already exists")
    await broker.create_topic(
        ask.topic.topic, number, configs, partitioned=partitioned, properties=properties
    )


async def grow(ask: AdminRequest) -> None:
    """Add partitions to a topic; asked again, make what an earlier time has left undone."""
    number, topic = number_of(ask), found(ask)
    refuse_too_many(number - topic.partitions)
    if number != topic.partitions:
        await ask.services.broker.grow_topic(topic.kafka_name, number)
    else:
        await ask.services.grown.complete(topic)


async def delete(ask: AdminRequest) -> None:
    """Delete a topic; without ``force`` only one that nobody uses."""
    topic = found(ask)
    if ask.topic.partition is not None and topic.partitioned:
        raise RestError(412, "a partition cannot be deleted alone: delete the topic")
    if not ask.flag("force") and any((await everywhere(ask, is_used_on, topic)).values()):
        raise RestError(412, "Topic has active producers/subscriptions")
    await ask.services.broker.delete_topic(topic.kafka_name)


@part_without_opening
async def is_used_on(ask: AdminRequest, name: PulsarName) -> bool:
    """Whether a partition has clients; one that is not open has none."""
    index = name.partition or 0
    check_not_elsewhere(ask, str(name), ask.services.broker.cluster.ownership.owner(name.topic, index))
    topic = ask.services.topics.find(name)
    partition = None if topic is None else ask.services.topics.opened(topic, index)
    return partition is not None and (
        bool(partition.producers.by_name) or any(each.consumers for each in partition.subscriptions.values())
    )


async def unload(ask: AdminRequest) -> None:
    """Close a topic; its clients look it up again, and it is opened anew."""
    await everywhere(ask, unload_on, found(ask))


@part
async def unload_on(ask: AdminRequest, name: PulsarName) -> None:
    topic, logs = await opened(ask, name), ask.services.broker.logs.open_logs
    going = logs.get(topic.topic, topic.index)
    if going is not None:
        await logs.release([going], LedgerClosed(f"{name} was unloaded"))


async def truncate(ask: AdminRequest) -> None:
    """Let go of all messages of a topic, acknowledged or not."""
    await everywhere(ask, truncate_on, found(ask))


@part
async def truncate_on(ask: AdminRequest, name: PulsarName) -> None:
    log = (await opened(ask, name)).log
    await log.trim(log.high_watermark)


async def trim(ask: AdminRequest) -> None:
    """Let go now of what retention no longer holds; that is looked at from time to time anyway."""
    await everywhere(ask, trim_on, found(ask))


@part
async def trim_on(ask: AdminRequest, name: PulsarName) -> None:
    topic = await opened(ask, name)
    if "delete" in topic.topic.config.cleanup_policy:
        await topic.log.retain(ask.services.clock())


async def permissions(ask: AdminRequest) -> dict[str, list[str]]:
    """Return what roles may do with a topic."""
    return as_json(ask.services.broker.security.permissions.of_topic(ask.topic.topic))


async def grant(ask: AdminRequest) -> None:
    """Grant a role these actions on a topic."""
    granting = ask.services.broker.security.permissions
    await granting.grant(ask.namespace, ask.path["role"], ask.strings(), ask.topic.topic)


async def revoke(ask: AdminRequest) -> None:
    """Take a role's grants on a topic away."""
    permissions = ask.services.broker.security.permissions
    if not await permissions.revoke(ask.namespace, ask.path["role"], ask.topic.topic):
        raise RestError(412, "Permissions are not set at the topic level")


async def properties(ask: AdminRequest) -> dict[str, str]:
    """Return what was said of a topic, and its own configuration, by Kafka's names."""
    topic = found(ask)
    return {**topic.properties, **topic.overrides}


async def set_properties(ask: AdminRequest) -> None:
    """Set properties of a topic: those of Kafka's names are its own configuration."""
    topic, broker = found(ask), ask.services.broker
    configs, others = _told_apart(ask.object())
    if configs:
        await broker.change_topic_config(topic.kafka_name, lambda topic: {**topic.overrides, **configs})
    await broker.change_topic_properties(topic.kafka_name, lambda topic: {**topic.properties, **others})


def _told_apart(said: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return which properties are a topic's configuration, by Kafka's names, and which only something to keep."""
    if not isinstance(said, dict) or not all(isinstance(text, str) for text in said.values()):
        raise RestError(400, "properties are an object of strings")
    configs = {name: text for name, text in said.items() if name in CONFIGS}
    return configs, {name: text for name, text in said.items() if name not in CONFIGS}


async def remove_property(ask: AdminRequest) -> None:
    """Take one property of a topic away, or one part of its own configuration."""
    topic, key = found(ask), ask.query.get("key", "")
    if key in topic.overrides:
        await without(ask, topic, lambda name: name == key)
        return
    if key not in topic.properties:
        raise RestError(412, f"the topic has no property {key!r}")
    await ask.services.broker.change_topic_properties(
        topic.kafka_name, lambda topic: {name: text for name, text in topic.properties.items() if name != key}
    )


async def retention(ask: AdminRequest) -> dict[str, int] | None:
    """Return a topic's own retention."""
    topic = found(ask)
    if not {"retention.ms", "retention.bytes"} & set(topic.overrides):
        return None
    minutes, size = topic.config.retention_ms, topic.config.retention_bytes
    return {
        "retentionTimeInMinutes": minutes // _MINUTE_MS if minutes >= 0 else -1,
        "retentionSizeInMB": size // _MB if size >= 0 else -1,
    }


async def set_retention(ask: AdminRequest) -> None:
    """Set a topic's own retention (what Kafka calls retention.ms and retention.bytes)."""
    topic, wanted = found(ask), ask.object()
    minutes, size = (_bound(wanted, name) for name in ("retentionTimeInMinutes", "retentionSizeInMB"))
    limits = ask.services.topics.policies.limits(topic)
    size_quota, age_quota = limits.size_quota or Quota(0), limits.age_quota or Quota(0)
    if exceeds(size_quota.limit, age_quota.limit, size * _MB, minutes * _MINUTE_MS):
        raise RestError(
            412,
            "Retention Quota must exceed configured backlog quota for topic. "
            "Please increase retention quota and retry",
        )
    texts = {
        "retention.ms": str(minutes * _MINUTE_MS if minutes >= 0 else -1),
        "retention.bytes": str(size * _MB if size >= 0 else -1),
    }
    await ask.services.broker.change_topic_config(
        topic.kafka_name, lambda topic: {**topic.overrides, **texts}
    )


def _bound(wanted: dict[str, Any], name: str) -> int:
    value = scalar(wanted.get(name), int)
    if not isinstance(value, int) or isinstance(value, bool) or value < -1:
        raise RestError(412, f"{name} must be a whole number, -1 for no bound, not {value!r}")
    return value


async def remove_retention(ask: AdminRequest) -> None:
    """Have a topic follow its namespace's retention again."""
    await without(ask, found(ask), lambda name: name.startswith("retention."))


async def without(ask: AdminRequest, topic: Topic, is_meant: Callable[[str], bool]) -> None:
    """Take parts of a topic's own configuration away, by their names."""
    await ask.services.broker.change_topic_config(
        topic.kafka_name,
        lambda topic: {name: text for name, text in topic.overrides.items() if not is_meant(name)},
    )


async def terminate(ask: AdminRequest) -> dict[str, Any]:
    """End a topic for good: it takes no more messages, and is read as before; give the last one's id."""
    if found(ask).partitioned and ask.topic.partition is None:
        raise RestError(405, "Termination of a partitioned topic is not allowed")
    return await _ended(await one(ask))


async def terminate_partitions(ask: AdminRequest) -> dict[str, Any]:
    """End all partitions of a topic for good; give the ids of their last messages."""
    if not found(ask).partitioned or ask.topic.partition is not None:
        raise RestError(
            405, "Termination of a non-partitioned topic is not allowed using partitioned-terminate"
        )
    ended = await everywhere(ask, terminate_on, found(ask))
    return {str(each["partitionIndex"]): each for each in ended.values()}


@part
async def terminate_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    return await _ended(await opened(ask, name))


async def _ended(topic: PulsarTopic) -> dict[str, Any]:
    last = await topic.terminate()
    place = {"ledgerId": last.ledger_id, "entryId": last.entry_id, "partitionIndex": topic.partition}
    return place | {"batchIndex": -1, "batchSize": 0}


async def look_up(ask: AdminRequest) -> dict[str, Any]:
    """Tell which broker serves a topic."""
    services = ask.services
    finds_coordinator = services.transactions is not None and ask.topic.finds_coordinator
    if not finds_coordinator and services.topics.find(ask.topic) is None:
        check_namespace(services.broker, ask.topic)
        if not services.broker.auto_topics(ask.topic.topic).allowed:
            raise TopicNotFound(f"Topic {ask.topic} not found")
    ownership, (topic, partition) = services.broker.cluster.ownership, _place(ask)
    owner = ownership.owner(topic, partition)
    if owner is None:  # whoever is asked takes what nobody has
        owner = await ownership.acquire_later(ownership.bundle_of(topic, partition))
    address = address_of(ownership, owner.node_id, ask.address)
    if not (address.pulsar or address.pulsar_tls):
        raise RestError(412, "Pulsar's protocol is not served: start with --pulsar HOST:PORT")
    return {
        "brokerUrl": address.pulsar,
        "brokerUrlTls": address.pulsar_tls,
        "httpUrl": address.http,
        "httpUrlTls": address.https,
        "nativeUrl": address.pulsar or address.pulsar_tls,
        "brokerUrlSsl": "",
    }


async def bundle(ask: AdminRequest) -> Reply:
    """Return the bundle that a topic belongs to."""
    return Reply(ask.services.broker.cluster.ownership.bundle_of(*_place(ask)).range.encode(), "text/plain")


def _place(ask: AdminRequest) -> tuple[TopicName, int]:
    name, transactions = ask.topic, ask.services.transactions
    if transactions is not None and name.finds_coordinator:
        name = transactions.kept_in(name)
    return name.topic, name.partition or 0


def managing(
    domain: str,
    *,
    topics: Endpoint,
    partitioned: Endpoint,
    create: Endpoint,
    create_partitioned: Endpoint,
    grow: Endpoint,
    delete: Endpoint,
    unload: Endpoint,
    truncate: Endpoint,
    trim: Endpoint,
) -> tuple[RestRoute, ...]:
    """Return the routes that topics have whether they are persistent or not; the endpoints are the domain's own."""
    namespace = f"/{domain}/{{tenant}}/{{namespace}}"
    topic, found_at = f"{namespace}/{{topic}}", f"//lookup/v2/topic{namespace}/{{topic}}"
    return (
        RestRoute("GET", namespace, topics, _TENANT),
        RestRoute("GET", f"{namespace}/partitioned", partitioned, _TENANT),
        RestRoute("PUT", topic, create, _TENANT),
        RestRoute("DELETE", topic, delete, _TENANT),
        RestRoute("GET", f"{topic}/partitions", partitions, _SEES),
        RestRoute("PUT", f"{topic}/partitions", create_partitioned, _TENANT),
        RestRoute("POST", f"{topic}/partitions", grow, _TENANT),
        RestRoute("DELETE", f"{topic}/partitions", delete, _TENANT),
        RestRoute("PUT", f"{topic}/unload", unload, _TENANT),
        RestRoute("DELETE", f"{topic}/truncate", truncate, _TENANT),
        RestRoute("POST", f"{topic}/trim", trim, _TENANT),
        RestRoute("GET", f"{topic}/permissions", permissions, _TENANT),
        RestRoute("POST", f"{topic}/permissions/{{role}}", grant, _TENANT),
        RestRoute("DELETE", f"{topic}/permissions/{{role}}", revoke, _TENANT),
        RestRoute("GET", found_at, look_up, _SEES),
        RestRoute("GET", f"{found_at}/bundle", bundle, _SEES),
    )


_ROOT = "/persistent/{tenant}/{namespace}/{topic}"
_TENANT, _SEES = RequiredLevel.tenant, RequiredLevel.look_up
ROUTES = (
    *managing(
        "persistent",
        topics=topics,
        partitioned=partitioned_topics,
        create=create,
        create_partitioned=create_partitioned,
        grow=grow,
        delete=delete,
        unload=unload,
        truncate=truncate,
        trim=trim,
    ),
    RestRoute("GET", f"{_ROOT}/properties", properties, _TENANT),
    RestRoute("PUT", f"{_ROOT}/properties", set_properties, _TENANT),
    RestRoute("DELETE", f"{_ROOT}/properties", remove_property, _TENANT),
    RestRoute("GET", f"{_ROOT}/retention", retention, _TENANT),
    RestRoute("POST", f"{_ROOT}/retention", set_retention, _TENANT),
    RestRoute("DELETE", f"{_ROOT}/retention", remove_retention, _TENANT),
    RestRoute("POST", f"{_ROOT}/terminate", terminate, _TENANT),
    RestRoute("POST", f"{_ROOT}/terminate/partitions", terminate_partitions, _TENANT),
)
