"""How far readers are: Kafka groups and Pulsar subscriptions, in one list.

A group's lag counts records, a subscription's backlog entries, as each protocol has it. The cursor that follows a
group is not listed as well. How old the first unread record is, is read from its entry, of a bounded number of
readers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import NamedTuple

from magnetar.auth import Group, Right, may
from magnetar.base.errors import BrokerError
from magnetar.base.slices import sliced
from magnetar.console.page import access_of
from magnetar.kafka.coordinators.kinds import AnyGroup
from magnetar.kafka.services import KafkaServices
from magnetar.ledger.errors import LedgerError
from magnetar.logs.open_logs import OpenLog
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.rest.request import AdminRequest
from magnetar.records.entry import index_of
from magnetar.records.errors import RecordsError
from magnetar.topics.topic import Topic

_MOST_BEHIND = 16
"""Partitions of a reader that are looked at for the age of what it has not read."""


class ReaderStanding(NamedTuple):
    """A reader at one topic."""

    name: str
    protocol: str
    """kafka or pulsar."""
    kind: str
    """classic, consumer, share, streams; Exclusive, Shared, Failover, Key_Shared, or empty without consumers."""
    state: str
    topic: Topic
    members: int
    lag: int | None
    """Records of a group, entries of a subscription; None where a partition was not open since the start."""
    behind: tuple[tuple[int, int], ...]
    """Partitions that have something unread, each with the offset of the first of it; -1 for a subscription's."""


async def standings(ask: AdminRequest, only: Topic | None = None) -> AsyncIterator[ReaderStanding]:
    """Yield the readers of all topics, or of one, that the client may see."""
    async for standing in _groups(ask, only):
        yield standing
    async for standing in _subscriptions(ask, only):
        yield standing


async def visible_groups(ask: AdminRequest) -> AsyncIterator[AnyGroup]:
    """Yield the Kafka groups that the client may see: as ``/metrics`` shows them."""
    services = ask.services.broker.offers.find(KafkaServices)
    if services is None:
        return
    async for group in sliced(services.groups.loaded_groups()):
        if shows(ask, group, by_tenant=services.by_tenant):
            yield group


def shows(ask: AdminRequest, group: AnyGroup, *, by_tenant: bool) -> bool:
    """True if the client may use a group, and see a topic that the group reads."""
    broker, access = ask.services.broker, access_of(ask)
    naming = broker.naming
    home = f"{naming.tenant}/{naming.namespace}"
    if not may(access, Right.use, Group(group.group_id, home, naming.tenant if by_tenant else None)):
        return False
    if by_tenant or may(access, Right.operate):
        return True
    read = (broker.get(name) for name in list(group.offsets))
    return any(topic is not None and may(access, Right.see, topic.name) for topic in read)


async def _groups(ask: AdminRequest, only: Topic | None) -> AsyncIterator[ReaderStanding]:
    broker, access = ask.services.broker, access_of(ask)
    async for group in visible_groups(ask):
        for name, committed in list(group.offsets.items()):
            topic = broker.get(name)
            if topic is None or (only is not None and topic is not only):
                continue
            if not may(access, Right.see, topic.name):
                continue
            lag: int | None = 0
            behind = []
            async for index, commit in sliced(committed.items()):
                figures = broker.logs.open_logs.figures(topic, index)
                bounds = None if figures is None else figures.bounds
                if bounds is None:
                    lag = None
                    continue
                unread = bounds.high_watermark - max(commit.offset, bounds.log_start_offset)
                if unread > 0:
                    behind.append((index, max(commit.offset, bounds.log_start_offset)))
                    lag = None if lag is None else lag + unread
            yield ReaderStanding(
                group.group_id,
                "kafka",
                str(group.kind),
                str(group.state),
                topic,
                len(group.members),
                lag,
                tuple(behind),
            )


async def _subscriptions(ask: AdminRequest, only: Topic | None) -> AsyncIterator[ReaderStanding]:
    access, services = access_of(ask), ask.services
    rows: dict[tuple[bytes, str], ReaderStanding] = {}
    clients: dict[tuple[bytes, str], set[str]] = {}
    async for each in sliced(services.topics.all_open()):
        topic = each.topic
        if (only is not None and topic is not only) or not may(access, Right.see, topic.name):
            continue
        for name, subscription in list(each.subscriptions.items()):
            if services.groups.is_groups(each, name):
                continue
            members = clients.setdefault((topic.topic_id, name), set())  # each is connected to all partitions
            members.update(each.name for each in subscription.consumers)
            backlog = subscription.backlog
            row = rows.get((topic.topic_id, name))
            before = (0, ()) if row is None else (row.lag or 0, row.behind)
            kind = SubType.Name(subscription.sub_type) if members else (row.kind if row is not None else "")
            is_full = backlog == 0 or len(before[1]) >= _MOST_BEHIND
            behind = before[1] if is_full else (*before[1], (each.index, -1))
            rows[topic.topic_id, name] = ReaderStanding(
                name,
                "pulsar",
                kind,
                "connected" if members else "no consumers",
                topic,
                len(members),
                before[0] + backlog,
                behind,
            )
    for row in rows.values():
        yield row


async def age_s(ask: AdminRequest, standing: ReaderStanding) -> float | None:
    """Return for how many seconds the oldest unread record of a reader has been there; None if that is not known.

    The topic's logs that are not open stay closed. Of many partitions the first 16 are read.
    """
    oldest: int | None = None
    for index, offset in standing.behind[:_MOST_BEHIND]:
        found = ask.services.broker.logs.open_logs.get(standing.topic, index)
        if found is None:
            continue
        with suppress(LedgerError, BrokerError, RecordsError):
            appended = await _appended_ms(ask, standing, found, offset)
            if appended is not None:
                oldest = appended if oldest is None else min(oldest, appended)
    return None if oldest is None else max(ask.services.clock() - oldest, 0) / 1000


async def _appended_ms(
    ask: AdminRequest, standing: ReaderStanding, found: OpenLog, offset: int
) -> int | None:
    if offset < 0:  # a subscription's: its cursor knows the place, not the offset
        opened = ask.services.topics.opened(standing.topic, found.index)
        subscription = None if opened is None else opened.subscriptions.get(standing.name)
        if opened is None or subscription is None:
            return None
        offset = await ask.services.groups.offset_of(opened, subscription)
    if offset >= found.log.high_watermark:
        return None
    entries = await found.log.read(offset, max_bytes=1)
    return index_of(entries[0].data).broker_timestamp if entries else None


async def oldest_first(
    ask: AdminRequest, some: Iterable[ReaderStanding], most: int
) -> list[tuple[ReaderStanding, float | None]]:
    """Return the readers whose first unread record is the oldest, with its age; of many those with most unread."""
    behind = sorted((each for each in some if each.lag), key=lambda each: -(each.lag or 0))[: 10 * most]
    aged = [(each, await age_s(ask, each)) async for each in sliced(behind)]
    return sorted(aged, key=lambda pair: -(pair[1] or 0))[:most]
