"""Groups and subscriptions of both protocols in one table, and each alone with the reason why it stands still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from magnetar.admin import rights
from magnetar.admin.live import LiveBroker
from magnetar.admin.plain import plain
from magnetar.admin.why_group import GroupFacts, why_group
from magnetar.auth import Right, Subscribed, may
from magnetar.base.slices import sliced
from magnetar.console.page import (
    Command,
    ConsolePage,
    Facts,
    access_of,
    kafka_tool,
    magnetar,
    pulsar_admin,
    topic_of,
    whole,
)
from magnetar.console.standings import ReaderStanding, age_s, standings, visible_groups
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import SubscriptionNotFound
from magnetar.pulsar.rest.request import AdminRequest, RestError
from magnetar.pulsar.rest.stats import subscription_stats
from magnetar.topics.names import TopicName

PER_PAGE = 100
_MOST_ROWS = 500
"""Partitions and members that a page of one group shows."""
_SORTS = ("lag", "name", "members")


class _Reader(NamedTuple):
    """A group at all its topics, or a subscription at its one."""

    name: str
    protocol: str
    kind: str
    state: str
    members: int
    lag: int | None
    at: tuple[ReaderStanding, ...]


async def facts(ask: AdminRequest) -> Facts:
    """Return a page of the table. Query: ``q`` a part of the name, ``protocol`` kafka or pulsar, ``sort``, ``page``."""
    sort, protocol = ask.query.get("sort", "lag"), ask.query.get("protocol", "")
    if sort not in _SORTS:
        raise RestError(400, f"sort must be one of {', '.join(_SORTS)}")
    wanted = ask.query.get("q", "").lower()
    found = [
        each
        for each in await _readers(ask)
        if wanted in each.name.lower() and protocol in ("", each.protocol)
    ]
    found.sort(key=lambda each: each.name)
    if sort != "name":
        found.sort(key=lambda each: -((each.lag or 0) if sort == "lag" else each.members))
    pages = max((len(found) + PER_PAGE - 1) // PER_PAGE, 1)
    page = whole(ask, "page", 1, 1, pages)
    some = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    return {
        "readers": [await _told(ask, each) async for each in sliced(some)],
        "found": len(found),
        "page": page,
        "pages": pages,
        "sort": sort,
    }


async def _readers(ask: AdminRequest) -> list[_Reader]:
    groups: dict[str, list[ReaderStanding]] = {}
    rows: list[_Reader] = []
    async for each in standings(ask):
        if each.protocol == "kafka":
            groups.setdefault(each.name, []).append(each)
        else:
            rows.append(_Reader(each.name, "pulsar", each.kind, each.state, each.members, each.lag, (each,)))
    async for group in visible_groups(ask):
        at = tuple(groups.get(group.group_id, ()))
        lags = [each.lag for each in at]
        lag = None if None in lags else sum(each or 0 for each in lags)
        state = str(group.state)
        rows.append(_Reader(group.group_id, "kafka", str(group.kind), state, len(group.members), lag, at))
    return rows


async def _told(ask: AdminRequest, reader: _Reader) -> dict[str, Any]:
    ages = [await age_s(ask, each) for each in reader.at[:16] if each.behind]
    return {
        "name": reader.name,
        "protocol": reader.protocol,
        "kind": reader.kind,
        "state": reader.state,
        "members": reader.members,
        "lag": reader.lag,
        "age_s": max((each for each in ages if each is not None), default=None),
        "topics": [each.topic.kafka_name for each in reader.at[:16]],
        "topic_count": len(reader.at),
    }


def commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("group", "list"),
        kafka_tool(ask, "kafka-groups", "--list"),
        pulsar_admin(ask, "topics", "subscriptions", "public/default/TOPIC"),
    ]


async def group_facts(ask: AdminRequest) -> Facts:
    """Return one Kafka group: why it does not move, its members, and how far it is. Query: ``group``."""
    name = ask.query.get("group", "")
    if not name:
        raise RestError(400, "group=NAME is missing")
    broker = ask.services.broker
    rights.check(access_of(ask), "why-group", {"group": name}, broker)
    if not any([each.group_id == name async for each in visible_groups(ask)]):
        raise RestError(404, f"no group {name} is coordinated by this broker")
    known = await LiveBroker(broker).group_facts(name)
    view = known.view
    if view is None:
        raise RestError(404, f"group {name} is gone")
    why = why_group(known)
    rows = [_progress(ask, known, key) for key in sorted(known.partitions)]
    visible = [each for each in rows if each is not None]
    visible.sort(key=lambda each: -(each["lag"] or 0))
    return {
        "group": name,
        "state": str(view.state),
        "kind": view.kind,
        "protocol": view.protocol,
        "generation": view.generation,
        "why": {"reason": why.reason.value, "says": why.says, "next_step": why.next_step},
        "lag": sum(each["lag"] or 0 for each in visible),
        "member_count": len(view.members),
        "members": [_member(ask, known, each) for each in view.members[:_MOST_ROWS]],
        "partition_count": len(visible),
        "partitions": visible[:_MOST_ROWS],
    }


def _may_see(ask: AdminRequest, topic: str) -> bool:
    found = ask.services.broker.get(topic)
    return found is not None and may(access_of(ask), Right.see, found.name)


def _progress(ask: AdminRequest, known: GroupFacts, key: tuple[str, int]) -> dict[str, Any] | None:
    if not _may_see(ask, key[0]):
        return None
    partition, committed, owner = known.partitions[key], known.committed.get(key), known.owners.get(key)
    is_here = not partition.elsewhere and not partition.problem
    return {
        "topic": key[0],
        "partition": key[1],
        "committed": None if committed is None else committed.offset,
        "committed_ms": None if committed is None else committed.commit_timestamp,
        "first": partition.first_offset if is_here else None,
        "next": partition.visible_offset if is_here else None,
        "lag": known.lag(key),
        "member": None if owner is None else owner.client_id,
        "elsewhere": partition.elsewhere,
        "problem": partition.problem,
    }


def _member(ask: AdminRequest, known: GroupFacts, member: Any) -> dict[str, Any]:
    assigned = [
        f"{topic}-{index}"
        for topic, index in known.assigned.get(member.member_id, ())
        if _may_see(ask, topic)
    ]
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "heard_s": member.heard_ms_ago / 1000,
        "waits_for": member.waits_for,
        "assigned": assigned[:_MOST_ROWS],
        "assigned_count": len(assigned),
    }


def group_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("why", "group", told["group"]),
        magnetar("group", "describe", told["group"]),
        kafka_tool(ask, "kafka-consumer-groups", "--describe", "--group", told["group"]),
    ]


async def subscription_facts(ask: AdminRequest) -> Facts:
    """Return a subscription's partitions that are open, its consumers, and why it does not move.

    Query: ``topic``, ``subscription``.
    """
    topic, name = topic_of(ask, Right.see), ask.query.get("subscription", "")
    rows, consumers = [], []
    says: list[tuple[str, str]] = []
    async for index in sliced(range(topic.partitions)):
        opened = ask.services.topics.opened(topic, index)
        subscription = None if opened is None else opened.subscriptions.get(name)
        if opened is None or subscription is None:
            continue
        stats = subscription_stats(subscription, opened)
        mark = subscription.cursor.mark_delete_position
        offset = await ask.services.groups.offset_of(opened, subscription)
        consumers += [{"partition": index} | each for each in stats.pop("consumers")]
        says.append(why_subscription(subscription))
        rows.append(
            stats
            | {
                "partition": index,
                "mark": f"{mark.ledger_id}:{mark.entry_id}",
                "offset": offset if offset < opened.log.high_watermark else None,
                "why": says[-1][1],
            }
        )
    if not rows:
        raise SubscriptionNotFound(f"Subscription {name} not found")
    worst = min(says, key=lambda each: _ORDER.index(each[0]))
    return {
        "topic": topic.kafka_name,
        "full": str(topic.name),
        "tenant": topic.name.tenant,
        "namespace": topic.name.namespace,
        "local": topic.name.local,
        "partitions": topic.partitions,
        "subscription": name,
        "is_groups": _is_of_group(ask, topic.name, name),
        "why": {"reason": worst[0], "says": worst[1]},
        "backlog": sum(each["msgBacklog"] for each in rows),
        "rows": rows[:_MOST_ROWS],
        "consumer_count": len(consumers),
        "consumers": consumers[:_MOST_ROWS],
    }


def _is_of_group(ask: AdminRequest, topic: TopicName, name: str) -> bool:
    """Return True if a client's right to the subscription is also one to the Kafka group of its name."""
    return ask.services.broker.coordination.progress.is_linked(name) and may(
        access_of(ask), Right.consume, Subscribed(topic, name)
    )


_ORDER = ("no-consumers", "blocked", "no-permits", "delayed", "reading", "caught-up")
"""Of several partitions, the first of these is the reason."""


def why_subscription(subscription: Subscription) -> tuple[str, str]:
    """Return the one reason why a subscription does not move, as a word that stays and as a sentence."""
    backlog, consumers = subscription.backlog, subscription.consumers
    if backlog == 0:
        return "caught-up", "everything is acknowledged"
    if not consumers:
        return "no-consumers", f"no consumer is connected; {backlog} entries wait"
    if subscription.is_blocked:
        held = subscription.unacked
        return (
            "blocked",
            f"its consumers hold {held} messages that they have not acknowledged: no more are sent",
        )
    if subscription.delayed >= backlog:
        return "delayed", "all that is left is to be delivered later, as its producers asked"
    readers: Sequence[Any] = (
        consumers if subscription.active_consumer is None else [subscription.active_consumer]
    )
    if all(each.permits <= 0 for each in readers):
        held = sum(each.unacked for each in readers)
        return (
            "no-permits",
            f"its consumers ask for no more messages; they hold {held} that they have not acknowledged",
        )
    return "reading", f"its consumers are reading; {backlog} entries are not acknowledged"


def subscription_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("topic", "describe", told["topic"]),
        pulsar_admin(ask, "topics", "partitioned-stats" if told["partitions"] > 1 else "stats", told["full"]),
        pulsar_admin(ask, "topics", "peek-messages", told["full"], "-s", told["subscription"], "-n", "1"),
    ]


async def why_facts(ask: AdminRequest) -> Facts:
    """Return why nothing new comes out of a partition. Query: ``topic``, ``partition``."""
    topic = topic_of(ask, Right.see)
    index = whole(ask, "partition", 0, 0, topic.partitions - 1)
    why = await LiveBroker(ask.services.broker).why_partition(topic.kafka_name, index)
    return {
        "topic": topic.kafka_name,
        "full": str(topic.name),
        "tenant": topic.name.tenant,
        "namespace": topic.name.namespace,
        "local": topic.name.local,
        "partitions": topic.partitions,
        "partition": index,
        "why": plain(why),
    }


def why_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    full = told["full"] if told["partitions"] == 1 else f"{told['full']}-partition-{told['partition']}"
    return [
        magnetar("why", f"{told['topic']}-{told['partition']}"),
        kafka_tool(
            ask, "kafka-get-offsets", "--topic", told["topic"], "--partitions", str(told["partition"])
        ),
        pulsar_admin(ask, "topics", "stats-internal", full),
    ]


GROUPS = ConsolePage("groups", "Groups", facts, commands)
GROUP = ConsolePage("group", "Group", group_facts, group_commands, in_menu=False)
SUBSCRIPTION = ConsolePage(
    "subscription", "Subscription", subscription_facts, subscription_commands, in_menu=False, of_topic=True
)
WHY = ConsolePage("why", "Why", why_facts, why_commands, in_menu=False, of_topic=True)
