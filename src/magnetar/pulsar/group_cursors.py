"""Kafka's groups as subscriptions: cursors that follow what groups commit, and groups that follow their cursors.

A cursor made for a group is marked at ``/magnetar/group-cursors/LEDGER/GROUP`` and is the group's alone: Pulsar's
tools show it, reset it, delete it, but no consumer may subscribe to it, unless the name is linked. Then both are one:

    the group has members      they read; consumers of the subscription wait; commits move the cursor
    the group has none         consumers are sent what is left; what they acknowledge is committed for the group

A partition's cursors are kept by the broker that has it; a group's coordinator may be another one. What groups commit
is told to those who keep the cursors, and these ask the coordinator (`magnetar.coordination.progress`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary, WeakSet

from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.slices import batched, sliced
from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.progress import GroupIsActive, GroupStanding, Read
from magnetar.ledger.errors import LedgerError, OffsetOutOfRange
from magnetar.ledger.port import Position
from magnetar.metadata import ANY, Delete, MetadataError, NotFound, Put
from magnetar.node.broker import Broker
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import PulsarError
from magnetar.pulsar.linked_shares import LinkedShares
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.records.errors import RecordsError
from magnetar.topics.topic import Topic

_MARKS = "/magnetar/group-cursors"
_COMMITTED, _JOINING = "groups.committed", "groups.joining"
_ROWS_AT_ONCE = 500
_LINKED_AT_ONCE = 20
_Row = list[Any]
"""Group, topic, partition, and the offset that was committed or None."""
_MAX_ROUNDS = 16  # what fails again and again is tried each 16 s
_log = logging.getLogger("magnetar.pulsar")


class GroupCursors:
    """Takes over what groups commit, once a second, and tells groups what became of their cursors."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        self._progress = broker.coordination.progress
        self._told: WeakKeyDictionary[PulsarTopic, dict[str, int]] = WeakKeyDictionary()
        """What a linked group is known to have committed, by its name."""
        self._behind: dict[Read, int | None] = {}
        """What groups committed and their cursors have not followed yet."""
        self._failed: dict[object, tuple[int, int]] = {}
        """Of whom something failed: how often in a row, and in which round it is tried again."""
        self._rounds = 0
        self._owed: WeakSet[Subscription] = WeakSet()
        """Those whose consumers stopped for a group that could not be told yet how far they were."""
        self.shares = LinkedShares(broker.coordination.linked_queues, topics, self.offset_of, self._put)
        self._urgent: set[asyncio.Task[None]] = set()
        self._progress.listening = True
        self._progress.joining.append(self._joining)
        topics.each_second.append(self.synchronise)
        topics.group_claims.append(self.is_groups)
        topics.loading.append(self._load)
        broker.events.topic_deleted.append(self._topic_deleted)
        broker.cluster.between.answer(_COMMITTED, _rows, self._committed_elsewhere)
        broker.cluster.between.answer(_JOINING, _text, self._joining_elsewhere)

    def is_groups(self, topic: PulsarTopic, name: str) -> bool:
        """Whether a subscription is a group's alone."""
        return not self._progress.is_linked(name) and name in topic.group_cursors

    async def _load(self, topic: PulsarTopic) -> None:
        names = await self._broker.store.children(f"{_MARKS}/{topic.log.name}")
        topic.group_cursors = set(map(unquote, names))

    async def _topic_deleted(self, topic: Topic) -> None:
        """What was marked of it is another's if a topic of its name is made again."""
        store = self._broker.store
        for ledger in topic.ledger_names():
            root = f"{_MARKS}/{ledger}"
            if names := await store.children(root):
                with contextlib.suppress(NotFound):
                    await store.commit([Delete(f"{root}/{name}", ANY) for name in names])

    async def synchronise(self) -> None:
        """Do what is due, and what could not be done before."""
        self._rounds += 1
        elsewhere: dict[int, list[_Row]] = {}
        """What groups of this broker read of partitions that others have, who keep the cursors."""
        news = self._progress.take()
        self._behind.update(news)
        for read in self._failed.keys() & news.keys():
            del self._failed[read]
        async for read in sliced(self._behind):
            async with self._trying(
                read, f"the cursor of group {read.group} on {read.topic} cannot follow"
            ) as now:
                if now and read in self._behind:  # at the end of the broker two rounds may run at once
                    offset = self._behind[read]
                    try:
                        await self._follow(read, offset)
                    except TopicNotFound:
                        pass
                    except NotOwned as away:
                        if away.owner is None:
                            raise
                        elsewhere.setdefault(away.owner.node_id, []).append([*read, offset])
                        continue
                    self._has_followed(read, offset)
        for node_id, rows in elsewhere.items():
            async with self._trying(
                node_id, f"cursors on broker {node_id} cannot follow their groups"
            ) as now:
                if now:
                    await self._tell_owner(node_id, rows)
        if self._progress.links:
            await self._link_all()

    def _has_followed(self, read: Read, offset: int | None) -> None:
        if self._behind.get(read, offset) == offset:
            self._behind.pop(read, None)

    async def _tell_owner(self, node_id: int, rows: list[_Row]) -> None:
        """Tell another broker what groups have committed, for the cursors that it keeps; raise ``BrokerError``."""
        for some in batched(rows, _ROWS_AT_ONCE):
            await self._broker.cluster.between.ask(node_id, _COMMITTED, list(some))
            for group, topic, partition, offset in some:
                self._has_followed(Read(group, topic, partition), offset)

    async def _committed_elsewhere(self, rows: list[_Row]) -> None:
        """Take over what groups of another broker have committed: their cursors follow in the next round."""
        self._behind.update((Read(*row[:3]), row[3]) for row in rows)

    async def _link_all(self) -> None:
        linked = [
            (topic, subscription)
            async for topic in sliced(self._topics.all_open())
            for name, subscription in topic.subscriptions.items()
            if subscription.cursor.is_durable and self._progress.is_linked(name)
        ]
        for some in batched(
            linked, _LINKED_AT_ONCE
        ):  # together: another broker is asked about all in one message
            await asyncio.gather(*(self._link_one(topic, each) for topic, each in some))

    async def _link_one(self, topic: PulsarTopic, subscription: Subscription) -> None:
        # Looked at by itself, and no sooner: a member may join, and consumers stop for it, while others are seen to.
        standing = await self._look(topic, subscription.name)
        if _is_shares(subscription, standing):
            await self._follow_books(topic, subscription)
            return
        what = f"group {subscription.name} cannot follow its subscription on {topic.name}"
        async with self._trying((topic.log.name, subscription.name), what) as now:
            if now and standing is not None:
                await self._link(topic, subscription, active=standing.is_active)

    async def _look(self, topic: PulsarTopic, name: str) -> GroupStanding | None:
        """Tell how it stands with a group; None where Kafka's groups are not served."""
        groups = self._progress.groups
        return None if groups is None else await groups.look(_read(topic, name))

    @asynccontextmanager
    async def _trying(self, who: object, what: str) -> AsyncIterator[bool]:
        """Tell whether to try something now; what fails is logged once and tried again, each time a little later."""
        failures, due = self._failed.get(who, (0, 0))
        now = due <= self._rounds
        try:
            yield now
        except (LedgerError, MetadataError, BrokerError, PulsarError, RecordsError) as error:
            self._failed[who] = failures + 1, self._rounds + min(2**failures, _MAX_ROUNDS)
            if not failures:
                _log.error("%s: %s; it is tried again", what, error)
        else:
            if now:
                self._failed.pop(who, None)

    async def _follow(self, read: Read, offset: int | None) -> None:
        """Put a group's cursor where the group is."""
        topic = await self._topics.open(self._broker.topic(read.topic), read.partition)
        found = topic.subscriptions.get(read.group)
        is_ours = found is None or self._progress.is_linked(read.group) or self.is_groups(topic, read.group)
        if not is_ours:
            return  # a subscription that only has the same name
        if offset is None:
            if found is not None:
                await topic.unsubscribe(read.group)
                await self._unmark(topic, read.group)
            return
        if found is None:
            # It is there or not, and the topic's owner alone says so.
            await self._broker.store.commit([Put(_mark(topic, read.group), b"", ANY)])
            topic.group_cursors.add(read.group)
            found = await topic.subscription(Wanted(read.group, SubType.Exclusive, is_group=True))
        if await self.offset_of(topic, found) != offset:
            await self._put(topic, found, offset)
        self._owed.discard(found)
        self._note_told(topic, read.group, offset)

    def _note_told(self, topic: PulsarTopic, name: str, offset: int) -> None:
        self._told.setdefault(topic, {})[name] = offset

    async def _put(self, topic: PulsarTopic, subscription: Subscription, offset: int) -> None:
        log = topic.log
        offset = min(max(offset, log.log_start_offset), log.high_watermark)
        entries = await log.read(offset, max_bytes=1) if offset < log.high_watermark else []
        if not entries:
            topic.seek(subscription, await topic.places.end())
            return
        entry = entries[0]
        place = Position(entry.ledger_id, entry.entry_id)
        first = await self._first_offset(topic, place, entry.last_offset)
        topic.seek(subscription, place)
        if offset > first:
            remaining = (1 << (entry.last_offset - first + 1)) - (1 << (offset - first))
            subscription.acks.begin_within(place, remaining)

    async def offset_of(self, topic: PulsarTopic, subscription: Subscription) -> int:
        """Return the offset of the first message that is not acknowledged."""
        subscription.flush_acks()
        start = max(await subscription.cursor.start_offset(), topic.log.log_start_offset)
        partly = subscription.acks.first_remaining(subscription.cursor.mark_delete_position)
        return min(start + partly, topic.log.high_watermark)

    @staticmethod
    async def _first_offset(topic: PulsarTopic, place: Position, last_offset: int) -> int:
        if place.entry_id == 0:
            ledger = next(each for each in topic.log.ledgers() if each.ledger_id == place.ledger_id)
            return ledger.first_offset
        try:
            return await topic.log.offset_behind(Position(place.ledger_id, place.entry_id - 1))
        except OffsetOutOfRange:
            return last_offset

    # -- linked names

    async def _follow_books(self, topic: PulsarTopic, subscription: Subscription) -> None:
        if subscription.paused:  # for a group of another kind that had the name before
            subscription.go_on()
        if isinstance(subscription, Shared) and subscription.link is not None:
            what = f"subscription {subscription.name} on {topic.name} cannot follow its share group"
            async with self._trying((topic.log.name, subscription.name), what) as now:
                if now:
                    await subscription.link.follow()

    async def _link(self, topic: PulsarTopic, subscription: Subscription, *, active: bool) -> None:
        if active and (not subscription.paused or subscription in self._owed):
            await self._hand_over(topic, subscription)
        elif not active and subscription.paused:
            subscription.go_on()
            topic.stir()
        if not active:
            await self._tell(topic, subscription)

    async def _tell(self, topic: PulsarTopic, subscription: Subscription) -> None:
        """Commit for the group what the subscription's consumers acknowledged."""
        groups = self._progress.groups
        assert groups is not None
        offset = await self.offset_of(topic, subscription)
        if self._told.get(topic, {}).get(subscription.name) == offset:
            return
        read = _read(topic, subscription.name)
        if (await groups.look(read)).committed != offset:
            await groups.move(read, offset, though_active=True)
        self._note_told(topic, subscription.name, offset)  # not before: what was refused is told again

    async def _hand_over(self, topic: PulsarTopic, subscription: Subscription) -> None:
        subscription.pause()
        self._owed.add(subscription)
        await self._tell(topic, subscription)
        self._owed.discard(subscription)

    async def _hand_over_now(self, topic: PulsarTopic, subscription: Subscription) -> None:
        what = f"group {subscription.name} cannot go on from its subscription on {topic.name}"
        async with self._trying((topic.log.name, subscription.name), what):
            await self._hand_over(topic, subscription)

    def _joining(self, group: str) -> None:
        """A member joins a linked group here: its consumers stop now, before the member asks where to begin."""
        self._urgently(f"telling of a member of {group}", self._hand_over_everywhere(group))

    async def _hand_over_everywhere(self, group: str) -> None:
        groups, ownership = self._progress.groups, self._broker.cluster.ownership
        if groups is not None and (await groups.look(Read(group, "", 0))).is_share:
            return  # they work together
        self._hand_over_here(group)
        others = [each.node_id for each in ownership.brokers() if each.node_id != ownership.node_id]
        asking = (self._broker.cluster.between.ask(node_id, _JOINING, group) for node_id in others)
        # Who does not hear of it sees the member itself, within a second.
        await asyncio.gather(*asking, return_exceptions=True)

    async def _joining_elsewhere(self, group: str) -> None:
        if self._progress.is_linked(group):  # of a subscription that is not, nobody would say that it goes on
            self._hand_over_here(group)

    def _hand_over_here(self, group: str) -> None:
        for topic in self._topics.all_open():
            subscription = topic.subscriptions.get(group)
            if subscription is not None and subscription.cursor.is_durable and not subscription.paused:
                what = f"handing {subscription.name} over to the group of its name"
                self._urgently(what, self._hand_over_now(topic, subscription))

    def _urgently(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._broker.background.once(what, work)
        self._urgent.add(task)
        task.add_done_callback(self._urgent.discard)

    # -- what operators do to a group's cursor

    @asynccontextmanager
    async def moving(self, topic: PulsarTopic, subscription: Subscription) -> AsyncIterator[None]:
        """A Kafka group of that name, if there is one, has no members, and goes on from where its cursor then is.

        Raises `GroupIsActive`.
        """
        await self.check(topic, subscription.name)
        async with self.shares.moving(topic, subscription):
            yield
        await self.moved(topic, subscription)

    @asynccontextmanager
    async def seeking(self, topic: PulsarTopic, subscription: Subscription) -> AsyncIterator[None]:
        """A consumer moves its cursor; raises `GroupIsActive` if members of a share group work through it as well."""
        name = subscription.name
        if self._progress.is_linked(name) and _is_shares(subscription, await self._look(topic, name)):
            await self.check(topic, name)
        async with self.shares.moving(topic, subscription):
            yield

    async def moved(self, topic: PulsarTopic, subscription: Subscription) -> None:
        """An operator moved a cursor: its group goes on from there; raise `GroupIsActive`."""
        groups, name = self._progress.groups, subscription.name
        if groups is None or not self._has_group(topic, name):
            return
        read = _read(topic, name)
        if (await groups.look(read)).is_share:
            return
        offset = await self.offset_of(topic, subscription)
        await groups.move(read, offset)
        self._note_told(topic, name, offset)

    async def check(self, topic: PulsarTopic, name: str) -> None:
        """Raise `GroupIsActive` if the cursor is that of a group with members."""
        if not self._has_group(topic, name):
            return
        standing = await self._look(topic, name)
        if standing is not None and standing.is_active:
            raise GroupIsActive(f"Kafka group {name} has members; stop them first")

    async def deleted(self, topic: PulsarTopic, name: str) -> None:
        """An operator ended a subscription: a group of that name forgets what it committed."""
        groups = self._progress.groups
        await self.shares.deleted(topic, name)
        if groups is not None and self._has_group(topic, name):
            read = _read(topic, name)
            if not (await groups.look(read)).is_share:
                await groups.forget(read)
                await self._unmark(topic, name)
        self._told.get(topic, {}).pop(name, None)

    def _has_group(self, topic: PulsarTopic, name: str) -> bool:
        return self._progress.is_linked(name) or name in topic.group_cursors

    async def _unmark(self, topic: PulsarTopic, name: str) -> None:
        if name in topic.group_cursors:
            with contextlib.suppress(NotFound):
                await self._broker.store.commit([Delete(_mark(topic, name), ANY)])
            topic.group_cursors.discard(name)


def _is_shares(subscription: Subscription, standing: GroupStanding | None) -> bool:
    """Whether it is a share group that a subscription is linked to."""
    is_working = isinstance(subscription, Shared) and subscription.link and subscription.link.is_working
    return bool(is_working) or (standing is not None and standing.is_share)


def _read(topic: PulsarTopic, group: str) -> Read:
    return Read(group, topic.topic.kafka_name, topic.index)


def _rows(asked: object) -> list[_Row]:
    if not isinstance(asked, list) or len(asked) > _ROWS_AT_ONCE or not all(map(_is_row, asked)):
        raise ValueError
    return asked


def _text(asked: object) -> str:
    if not isinstance(asked, str):
        raise ValueError
    return asked


def _is_row(row: object) -> bool:
    """Whether it is group, topic, partition, and an offset or None."""
    return (
        isinstance(row, list)
        and [type(each) for each in row[:3]] == [str, str, int]
        and len(row) == 4
        and type(row[3]) in (int, type(None))
    )


def _mark(topic: PulsarTopic, name: str) -> str:
    return f"{_MARKS}/{topic.log.name}/{quote(name, safe='')}"
