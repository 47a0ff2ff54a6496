"""Topics that are not persistent: made, grown, listed, deleted, and what is going on with them.

Where Pulsar refuses because nothing is kept, the status is its 405; where it fails with an error of its own (500), too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from magnetar.base.errors import TopicNotFound
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.non_persistent import NonPersistentSubscription
from magnetar.pulsar.errors import SubscriptionNotFound
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.non_persistent import NonPersistentTopic, NonPersistentTopics
from magnetar.pulsar.rates import Rates
from magnetar.pulsar.rest.everywhere import check_not_elsewhere, everywhere, part
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute
from magnetar.pulsar.rest.stats import as_asked, consumer_stats, publisher_stats, together
from magnetar.pulsar.rest.topics import managing, number_of, refuse_too_many
from magnetar.topics.topic import Topic


def found(ask: AdminRequest) -> Topic:
    """Return the topic that the path names, with or without a partition; raise ``TopicNotFound``."""
    name = ask.topic
    topic = _all(ask).find(name)
    if topic is None:  # what has no partitions, only its broker knows
        owner = ask.services.broker.cluster.ownership.owner(name.topic, name.partition or 0)
        check_not_elsewhere(ask, str(name), owner)
    if topic is None or (name.partition is not None and name.partition >= topic.partitions):
        raise TopicNotFound(f"Topic {name} not found")
    return topic


async def one(ask: AdminRequest) -> NonPersistentTopic:
    """Return the partition that the path names; of a topic with several it must name one."""
    topic = found(ask)
    if ask.topic.partition is None and topic.partitions > 1:
        raise RestError(405, f"{topic.name} has {topic.partitions} partitions: name one of them")
    return await _all(ask).get(ask.topic, create=False)


def _all(ask: AdminRequest) -> NonPersistentTopics:
    return ask.services.topics.non_persistent


async def topics(ask: AdminRequest) -> list[str]:
    """List a namespace's (or a bundle's) topics that are in use; of those with partitions, each partition."""
    ask.services.broker.namespaces.policies(ask.namespace)
    return _all(ask).names(ask.namespace)


async def partitioned_topics(ask: AdminRequest) -> list[str]:
    """List a namespace's topics that have partitions."""
    ask.services.broker.namespaces.policies(ask.namespace)
    return _all(ask).partitioned(ask.namespace)


async def create(ask: AdminRequest) -> None:
    """Make a topic without partitions; it is forgotten when nobody has used it for a minute."""
    _check_name(ask)
    await _all(ask).create(ask.topic.topic)


async def create_partitioned(ask: AdminRequest) -> None:
    """Make a topic with so many partitions."""
    number = number_of(ask)
    refuse_too_many(number)
    _check_name(ask)
    await _all(ask).create_partitioned(ask.topic.topic, number)


def _check_name(ask: AdminRequest) -> None:
    ask.services.broker.namespaces.policies(ask.namespace)
    if ask.topic.partition is not None:
        raise RestError(412, "names ending with -partition-N belong to the partitions of a topic")


async def grow(ask: AdminRequest) -> None:
    """Add partitions to a topic."""
    number, topic = number_of(ask), found(ask)
    refuse_too_many(number - topic.partitions)
    if number != topic.partitions:
        await _all(ask).grow(topic, number)


async def delete(ask: AdminRequest) -> None:
    """Delete a topic; without ``force`` only one that nobody uses."""
    topic = found(ask)
    if ask.topic.partition is not None and topic.partitioned:
        raise RestError(412, "a partition cannot be deleted alone: delete the topic")
    if not ask.flag("force") and any((await everywhere(ask, has_users_on, topic)).values()):
        raise RestError(412, "Topic has active producers/subscriptions")
    await _all(ask).delete(topic)


@part
async def has_users_on(ask: AdminRequest, name: PulsarName) -> bool:
    return bool((await _all(ask).get(name, create=False)).users)


async def unload(ask: AdminRequest) -> None:
    """Send a topic's clients away; they come back by themselves."""
    await everywhere(ask, send_away_on, found(ask))


@part
async def send_away_on(ask: AdminRequest, name: PulsarName) -> None:
    (await _all(ask).get(name, create=False)).send_away()


async def subscriptions(ask: AdminRequest) -> list[str]:
    """List a topic's subscriptions."""
    named = await everywhere(ask, names_on, found(ask))
    return sorted({name for some in named.values() for name in some})


@part
async def names_on(ask: AdminRequest, name: PulsarName) -> list[str]:
    return list((await _all(ask).get(name, create=False)).subscriptions)


async def create_subscription(ask: AdminRequest) -> None:
    """Refuse: such a subscription is there as long as its consumers."""
    raise RestError(400, "Create subscription on non-persistent topic can only be done through client")


async def delete_subscription(ask: AdminRequest) -> None:
    """End a subscription; its consumers are sent away."""
    if not any((await everywhere(ask, delete_subscription_on, found(ask))).values()):
        raise SubscriptionNotFound(f"Subscription {ask.path['subscription']} not found")


@part
async def delete_subscription_on(ask: AdminRequest, name: PulsarName) -> bool:
    topic, wanted = await _all(ask).get(name, create=False), ask.path["subscription"]
    if wanted not in topic.subscriptions:
        return False
    topic.unsubscribe(wanted)
    return True


async def truncate(ask: AdminRequest) -> None:
    """Refuse: nothing is kept."""
    raise RestError(412, "unsupport truncate")


async def trim(ask: AdminRequest) -> None:
    """Refuse: nothing is kept."""
    raise RestError(412, "Trim on a non-persistent topic is not allowed")


async def stats(ask: AdminRequest) -> dict[str, Any]:
    """Return a topic's producers, subscriptions, rates, and what was dropped."""
    return as_asked(ask, topic_stats(await one(ask)))


@part
async def stats_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    return as_asked(ask, topic_stats(await _all(ask).get(name, create=False)))


async def partitioned_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return the stats of a topic with partitions: together and, with ``perPartition``, of each."""
    topic = found(ask)
    each = await everywhere(ask, stats_on, topic)
    return await together(list(each.values())) | {
        "metadata": {"partitions": topic.partitions if topic.partitioned else 0, "deleted": False},
        "partitions": each if ask.flag("perPartition", default=True) else {},
    }


async def internal_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return how many entries came; there are no ledgers and no cursors."""
    topic = await one(ask)
    return {
        "entriesAddedCounter": topic.entries,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "cursors": {name: {"active": bool(each.consumers)} for name, each in topic.subscriptions.items()},
    }


def topic_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    """Return what Pulsar's ``NonPersistentTopicStats`` has, and ``msgDropCounter``; counters are since it was
    opened.
    """
    counters, rates = Rates.of_fleeting(topic)
    return {
        "msgRateIn": rates[0],
        "msgThroughputIn": rates[1],
        "msgRateOut": rates[2],
        "msgThroughputOut": rates[3],
        "msgDropRate": rates[4],
        "msgInCounter": counters[0],
        "bytesInCounter": counters[1],
        "msgOutCounter": counters[2],
        "bytesOutCounter": counters[3],
        "msgDropCounter": counters[4],
        "averageMsgSize": counters[1] / counters[0] if counters[0] else 0.0,
        "storageSize": 0,
        "backlogSize": 0,
        "publishers": [publisher_stats(each) for each in topic.producers.by_name.values()],
        "waitingPublishers": topic.producers.waiting,
        "subscriptions": {name: _subscription(each) for name, each in topic.subscriptions.items()},
        "replication": {},
    }


def _subscription(subscription: NonPersistentSubscription) -> dict[str, Any]:
    counters, rates = Rates.of_fleeting_subscription(subscription)
    active = subscription.active_consumer
    return {
        "msgRateOut": rates[0],
        "msgThroughputOut": rates[1],
        "msgDropRate": rates[2],
        "msgOutCounter": counters[0],
        "bytesOutCounter": counters[1],
        "msgDropCounter": counters[2],
        "msgBacklog": 0,
        "unackedMessages": 0,
        "type": SubType.Name(subscription.sub_type),
        "activeConsumerName": active.name if active is not None else None,
        "consumers": [consumer_stats(each, subscription) for each in subscription.consumers],
        "isDurable": False,
        "isReplicated": False,
        "subscriptionProperties": subscription.properties,
    }


def _refusal(what: str) -> Callable[[AdminRequest], Awaitable[None]]:
    async def refuse(ask: AdminRequest) -> None:
        found(ask)
        raise RestError(405, f"{what} on a non-persistent topic is not allowed")

    refuse.__doc__ = f"Refuse: {what[0].lower()}{what[1:]} makes no sense where nothing is kept."
    return refuse


_ROOT = "/non-persistent/{tenant}/{namespace}/{topic}"
_SUB = f"{_ROOT}/subscription/{{subscription}}"
_TENANT, _SEES = RequiredLevel.tenant, RequiredLevel.look_up
_KEPT_ONLY = (
    ("POST", f"{_SUB}/skip_all", "Skip messages"),
    ("POST", f"{_SUB}/skip/{{count}}", "Skip messages"),
    ("POST", f"{_SUB}/resetcursor/{{timestamp}}", "Reset cursor"),
    ("POST", f"{_SUB}/resetcursor", "Reset cursor"),
    ("POST", f"{_SUB}/expireMessages/{{seconds}}", "Expire messages"),
    ("POST", f"{_SUB}/expireMessages", "Expire messages"),
    ("POST", f"{_ROOT}/all_subscription/expireMessages/{{seconds}}", "Expire messages for all subscriptions"),
    ("GET", f"{_SUB}/position/{{position}}", "Peek messages"),
    ("GET", f"{_ROOT}/ledger/{{ledger}}/entry/{{entry}}", "Get message by ID"),
    ("GET", f"{_ROOT}/examinemessage", "Examine messages"),
    ("GET", f"{_ROOT}/messageid/{{timestamp}}", "Get message ID by timestamp"),
    ("GET", f"{_ROOT}/lastMessageId", "GetLastMessageId"),
    ("PUT", f"{_ROOT}/backlogSize", "Get backlog size"),
    ("GET", f"{_ROOT}/compaction", "Compaction"),
    ("PUT", f"{_ROOT}/compaction", "Compaction"),
    ("POST", f"{_ROOT}/terminate", "Termination"),
    ("PUT", f"{_ROOT}/offload", "Offload"),
)
ROUTES = (
    *managing(
        "non-persistent",
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
    RestRoute("GET", _ROOT, topics, _TENANT),
    RestRoute("GET", f"{_ROOT}/stats", stats, _SEES),
    RestRoute("GET", f"{_ROOT}/partitioned-stats", partitioned_stats, _SEES),
    RestRoute("GET", f"{_ROOT}/internalStats", internal_stats, _SEES),
    RestRoute("GET", f"{_ROOT}/subscriptions", subscriptions, _SEES),
    RestRoute("PUT", _SUB, create_subscription, RequiredLevel.consume),
    RestRoute("DELETE", _SUB, delete_subscription, RequiredLevel.consume),
    *(
        RestRoute(method, path, _refusal(what), RequiredLevel.consume if "subscription" in path else _SEES)
        for method, path, what in _KEPT_ONLY
    ),
)
