"""What is going on with a topic, in Pulsar's words: stats, internal stats, and metrics for Prometheus."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from magnetar.base.slices import sliced
from magnetar.ledger.port import LedgerSummary
from magnetar.pulsar.dispatch.base import AnySubscription, SubType
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.producers import Producer
from magnetar.pulsar.rates import Rates
from magnetar.pulsar.rest.everywhere import everywhere, opened, part
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestRoute, address_of
from magnetar.pulsar.rest.topics import found, one
from magnetar.pulsar.topic import PulsarTopic
from magnetar.web import common as web_common
from magnetar.wire.pulsar.pulsar_pb2 import ProducerAccessMode


async def stats(ask: AdminRequest) -> dict[str, Any]:
    """Return a topic's producers, subscriptions, rates and sizes."""
    return as_asked(ask, topic_stats(await one(ask)))


@part
async def stats_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    return as_asked(ask, topic_stats(await opened(ask, name)))


async def partitioned_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return the stats of a topic with partitions: together and, with ``perPartition``, of each."""
    topic = found(ask)
    each = await everywhere(ask, stats_on, topic)
    return await together(list(each.values())) | {
        "metadata": {"partitions": topic.partitions if topic.partitioned else 0},
        "partitions": each if ask.flag("perPartition", default=True) else {},
    }


def as_asked(ask: AdminRequest, stats: dict[str, Any]) -> dict[str, Any]:
    """Return a topic's stats with who has it, this broker, and without what the query leaves out
    (``excludePublishers``, ``excludeConsumers``).
    """
    ownership = ask.services.broker.cluster.ownership
    stats["ownerBroker"] = address_of(ownership, ownership.node_id, ask.address).broker
    if ask.flag("excludePublishers"):
        stats["publishers"] = []
    if ask.flag("excludeConsumers"):
        for subscription in stats["subscriptions"].values():
            subscription["consumers"] = []
    return stats


async def internal_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return a topic's ledgers and cursors."""
    return await topic_internals(await one(ask))


@part
async def internals_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    return await topic_internals(await opened(ask, name))


async def partitioned_internal_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return the ledgers and cursors of each partition."""
    topic = found(ask)
    return {
        "metadata": {"partitions": topic.partitions if topic.partitioned else 0},
        "partitions": await everywhere(ask, internals_on, topic),
    }


def topic_stats(topic: PulsarTopic) -> dict[str, Any]:
    """Return what Pulsar's ``TopicStats`` has. Counters are since the topic was opened."""
    log, rate = topic.log, Rates.of(topic)
    subscriptions = {name: subscription_stats(each, topic) for name, each in topic.subscriptions.items()}
    messages = log.log_end_offset - log.log_start_offset
    return {
        "msgRateIn": rate.messages_in,
        "msgThroughputIn": rate.bytes_in,
        "msgRateOut": rate.messages_out,
        "msgThroughputOut": rate.bytes_out,
        "bytesInCounter": rate.total_bytes_in,
        "msgInCounter": rate.total_messages_in,
        "bytesOutCounter": sum(each["bytesOutCounter"] for each in subscriptions.values()),
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "averageMsgSize": log.size() / messages if messages else 0.0,
        "msgChunkPublished": topic.has_chunks,
        "storageSize": log.size(),
        "backlogSize": max((each["backlogSize"] for each in subscriptions.values()), default=0),
        "backlogQuotaLimitSize": topic.limits.size_quota.limit if topic.limits.size_quota else 0,
        "backlogQuotaLimitTime": topic.limits.age_quota.limit if topic.limits.age_quota else 0,
        "offloadedStorageSize": sum(each.size for each in log.ledgers() if is_offloaded(each)),
        "publishers": [publisher_stats(each) for each in topic.producers.by_name.values()],
        "waitingPublishers": topic.producers.waiting,
        "subscriptions": subscriptions,
        "replication": {},
        "compaction": _compaction(topic),
        "deduplicationStatus": "Enabled" if topic.dedup is not None else "Disabled",
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
    }


def subscription_stats(subscription: Subscription, topic: PulsarTopic) -> dict[str, Any]:
    """Return what Pulsar's ``SubscriptionStats`` has; the backlog counts entries, as Pulsar's does."""
    consumers = [consumer_stats(each, subscription) for each in subscription.consumers]
    rate = Rates.of_subscription(subscription)
    active = subscription.active_consumer
    return {
        "msgRateOut": rate.messages,
        "msgThroughputOut": rate.bytes,
        "bytesOutCounter": rate.total_bytes,
        "msgOutCounter": rate.total_messages,
        "msgRateRedeliver": rate.redelivered,
        "messageAckRate": rate.acknowledged,
        "msgBacklog": subscription.backlog,
        "msgBacklogNoDelayed": subscription.backlog - subscription.delayed,
        "backlogSize": topic.places.bytes_behind(subscription.cursor.mark_delete_position),
        "blockedSubscriptionOnUnackedMsgs": subscription.is_blocked,
        "msgDelayed": subscription.delayed,
        "unackedMessages": subscription.unacked,
        "type": SubType.Name(subscription.sub_type) if consumers else None,
        "activeConsumerName": active.name if active is not None else None,
        "msgRateExpired": rate.expired,
        "totalMsgExpired": subscription.expired,
        "consumers": consumers,
        "isDurable": subscription.cursor.is_durable,
        "isReplicated": False,
        "allowOutOfOrderDelivery": subscription.any_order,
        "nonContiguousDeletedMessagesRanges": len(subscription.cursor.deleted_ranges()),
        "subscriptionProperties": subscription.properties,
        "consumersAfterMarkDeletePosition": {},  # none of a Key_Shared subscription waits for older messages' keys
    }


async def topic_internals(topic: PulsarTopic) -> dict[str, Any]:
    """Return what Pulsar's ``PersistentTopicInternalStats`` has."""
    confirmed = await topic.places.last()
    ledgers = topic.log.ledgers()
    last = ledgers[-1] if ledgers else None
    compacted = topic.log.compacted
    copies = compacted.ledger if compacted is not None else None
    return {
        "entriesAddedCounter": sum(each.entries for each in ledgers),
        "numberOfEntries": sum(each.entries for each in ledgers),
        "totalSize": topic.log.size(),
        "currentLedgerEntries": last.entries if last is not None else 0,
        "currentLedgerSize": last.size if last is not None else 0,
        "lastLedgerCreatedTimestamp": _time(last.created_ms) if last is not None else "",
        "waitingCursorsCount": sum(each.is_waiting for each in topic.subscriptions.values()),
        "lastConfirmedEntry": f"{confirmed.ledger_id}:{confirmed.entry_id}",
        "state": "LedgerOpened" if topic.log.terminated is None else "Terminated",
        "ledgers": [_ledger(each) for each in ledgers],
        "cursors": {name: _cursor(each, topic) for name, each in topic.subscriptions.items()}
        | _compaction_cursor(topic),
        "schemaLedgers": [],
        "compactedLedger": {
            "ledgerId": copies.ledger_id if copies is not None else -1,
            "entries": copies.entries if copies is not None else -1,
            "size": copies.size if copies is not None else -1,
            "offloaded": False,
            "underReplicated": False,
        },
        "properties": {
            "firstOffset": str(topic.log.log_start_offset),
            "nextOffset": str(topic.log.high_watermark),
        },
    }


def _compaction(topic: PulsarTopic) -> dict[str, Any]:
    report = topic.log.compaction
    return {
        "lastCompactionRemovedEventCount": report.removed,
        "lastCompactionSucceedTimestamp": report.succeeded_ms,
        "lastCompactionFailedTimestamp": report.failed_ms,
        "lastCompactionDurationTimeInMills": report.took_ms,
    }


def _compaction_cursor(topic: PulsarTopic) -> dict[str, Any]:
    """Return the horizon as Pulsar shows it: as the cursor of a subscription of this name."""
    compacted = topic.log.compacted
    if compacted is None:
        return {}
    horizon = compacted.horizon
    return {
        "__compaction": {
            "markDeletePosition": f"{horizon.ledger_id}:{horizon.entry_id}",
            "readPosition": f"{horizon.ledger_id}:{horizon.entry_id + 1}",
            "state": "Open",
            "active": False,
            "individuallyDeletedMessages": "[]",
            "properties": {"CompactedTopicLedger": compacted.ledger.ledger_id},
        }
    }


def _ledger(ledger: LedgerSummary) -> dict[str, Any]:
    return {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size,
        "offloaded": is_offloaded(ledger),
        "metadata": None,
        "underReplicated": False,
        "properties": {"firstOffset": str(ledger.first_offset), "lastOffset": str(ledger.last_offset)}
        | _whereabouts(ledger),
    }


def is_offloaded(ledger: LedgerSummary) -> bool:
    """Return whether tiered storage has a ledger, as Pulsar tells it: whether it is here as well or not."""
    return ledger.offload is not None and ledger.offload.complete


def _whereabouts(ledger: LedgerSummary) -> dict[str, str]:
    """Return where a ledger lies, if that is not only here."""
    offload = ledger.offload
    if offload is None or not offload.complete:
        return {}
    place = {
        key: value for key, value in offload.place.items() if value and key != "managedLedgerOffloadDriver"
    }
    return {
        "offloadDriver": offload.driver,
        "offloadUuid": offload.uuid,
        "offloadPlace": " ".join(f"{key}={value}" for key, value in place.items()),
        "local": str(not offload.deleted).lower(),
    }


def _cursor(subscription: Subscription, topic: PulsarTopic) -> dict[str, Any]:
    cursor = subscription.cursor
    mark, following = cursor.mark_delete_position, subscription.read_position
    ranges = ",".join(
        f"({low.ledger_id}:{low.entry_id}..{high.ledger_id}:{high.entry_id}]"
        for low, high in cursor.deleted_ranges()
    )
    return {
        "markDeletePosition": f"{mark.ledger_id}:{mark.entry_id}",
        "readPosition": f"{following.ledger_id}:{following.entry_id}",
        "waitingReadOp": subscription.is_waiting,
        "messagesConsumedCounter": sum(each.entries for each in topic.log.ledgers()) - subscription.backlog,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": f"[{ranges}]",
        "state": "Open",
        "active": bool(subscription.consumers),
        "numberOfEntriesSinceFirstNotAckedMessage": topic.places.entries_between(mark, following),
        "totalNonContiguousDeletedMessagesRange": len(cursor.deleted_ranges()),
        "subscriptionHavePendingRead": subscription.is_waiting,
    }


def publisher_stats(producer: Producer) -> dict[str, Any]:
    """Return what Pulsar's ``PublisherStats`` has."""
    rate = Rates.of_producer(producer)
    return {
        "accessMode": ProducerAccessMode.Name(producer.access_mode),
        "msgInCounter": producer.messages,
        "bytesInCounter": producer.bytes,
        "msgRateIn": rate.messages,
        "msgThroughputIn": rate.bytes,
        "averageMsgSize": producer.bytes / producer.messages if producer.messages else 0.0,
        "producerId": producer.producer_id,
        "producerName": producer.name,
        "address": producer.sink.address,
        "connectedSince": _time(producer.connected_ms),
        "clientVersion": producer.sink.client_version,
        "metadata": producer.metadata,
    }


def consumer_stats(consumer: Consumer, subscription: AnySubscription) -> dict[str, Any]:
    """Return what Pulsar's ``ConsumerStats`` has."""
    rate = Rates.of_consumer(consumer)
    return {
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "msgOutCounter": consumer.delivered_messages,
        "bytesOutCounter": consumer.delivered_bytes,
        "messageAckCounter": consumer.acknowledged,
        "msgRateOut": rate.messages,
        "msgThroughputOut": rate.bytes,
        "msgRateRedeliver": rate.redelivered,
        "messageAckRate": rate.acknowledged,
        "blockedConsumerOnUnackedMsgs": subscription.holds_back(consumer),
        "address": consumer.sink.address,
        "connectedSince": _time(consumer.connected_ms),
        "lastConsumedFlowTimestamp": consumer.flowed_ms,
        "clientVersion": consumer.sink.client_version,
        "metadata": consumer.metadata,
    }


async def together(partitions: list[dict[str, Any]]) -> dict[str, Any]:
    """Add numbers up, join lists, and put the stats of a subscription's partitions together."""
    return {
        key: await _joined(key, [each[key] for each in partitions if key in each])
        async for key in sliced(await _keys_of(partitions))
    }


async def _keys_of(rows: list[dict[str, Any]]) -> dict[str, None]:
    found: dict[str, None] = {}
    async for row in sliced(rows):
        found |= dict.fromkeys(row)
    return found


async def _joined(key: str, values: list[Any]) -> Any:
    first = values[0]
    if key == "subscriptions":
        names = await _keys_of(values)
        return {
            name: await together([value[name] for value in values if name in value])
            async for name in sliced(names)
        }
    if isinstance(first, list):
        return [item for value in values for item in value]
    if isinstance(first, bool) or not isinstance(first, int | float):
        return next((value for value in values if value), first)
    return sum(values) / len(values) if key == "averageMsgSize" else sum(values)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms else ""


async def metrics(ask: AdminRequest) -> Response:
    """Return what Prometheus reads, under Pulsar's and Kafka's own names; of topics those that may be seen."""
    return web_common.metrics(ask.services.broker, ask.principal)


_ROOT = "/persistent/{tenant}/{namespace}/{topic}"
ROUTES = (
    RestRoute("GET", f"{_ROOT}/stats", stats, RequiredLevel.look_up),
    RestRoute("GET", f"{_ROOT}/partitioned-stats", partitioned_stats, RequiredLevel.look_up),
    RestRoute("GET", f"{_ROOT}/internalStats", internal_stats, RequiredLevel.look_up),
    RestRoute("GET", f"{_ROOT}/partitioned-internalStats", partitioned_internal_stats, RequiredLevel.look_up),
    RestRoute("GET", f"{_ROOT}/internal-info", internal_stats, RequiredLevel.look_up),
    RestRoute("GET", "//metrics", metrics, RequiredLevel.metrics),
    RestRoute("GET", "//metrics/", metrics, RequiredLevel.metrics),
)
