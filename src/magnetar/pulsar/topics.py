"""All topics of this broker as Pulsar's clients find them: opened when somebody first asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice, takewhile

from magnetar.base.background import Repeated, end_all
from magnetar.base.errors import TopicExists, TopicNotFound
from magnetar.base.once import Once
from magnetar.base.slices import PacedTurns, batched, sliced
from magnetar.base.some_lines import SomeLines
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.pulsar.backlog import TopicBacklog
from magnetar.pulsar.deduplication import CURSOR as DEDUPLICATION_CURSOR
from magnetar.pulsar.dispatch.deliveries import Deliveries
from magnetar.pulsar.dispatch.reading import UnackedLimits
from magnetar.pulsar.errors import NotAllowed
from magnetar.pulsar.names import PulsarName, names_of
from magnetar.pulsar.non_persistent import NonPersistentTopic, NonPersistentTopics, check_namespace
from magnetar.pulsar.open_topics import FindBooks
from magnetar.pulsar.policies import TopicPolicies
from magnetar.pulsar.settings import PulsarSettings
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.errors import RecordsError
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic

_SWEEP_S = 1.0
_SAVED_AT_ONCE = 500  # topics: their cursors share commits
_LOOKED_AT_ONCE = 100
_UNUSED_S = 60.0
"""How long a topic that nobody uses stays open; who has just looked it up may be about to use it."""
_log = logging.getLogger("magnetar.pulsar")

AnyTopic = PulsarTopic | NonPersistentTopic


class PulsarTopics:
    """The partitions that are open, by topic and index."""

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._clock = clock
        settings = broker.settings
        self._conversions = Deliveries(settings.of(PulsarSettings).memory_cache_bytes)
        self.turns = PacedTurns()
        """In which topics, and connections, do what very many of them may have to do at once."""
        self._limits = UnackedLimits(
            settings.of(PulsarSettings).max_unacked_messages_per_consumer,
            settings.of(PulsarSettings).max_unacked_messages_per_subscription,
        )
        self.policies = TopicPolicies(broker)
        self.policies.changed.append(self._policies_changed)
        broker.logs.offloading.by_topic.append(
            lambda topic: self.policies.content(topic.name).get("offloadPolicies") or {}
        )
        self.non_persistent = NonPersistentTopics(broker, self.policies, clock)
        self._open: dict[tuple[bytes, int], PulsarTopic] = {}
        self._opening: Once[tuple[bytes, int], PulsarTopic] = Once()
        self._stirred: dict[PulsarTopic, None] = {}
        """Those that something was done to since the last sweep: no other is looked at."""
        self._unused: dict[PulsarTopic, float] = {}
        """Those that nobody uses, and since when (the loop's time), in that order."""
        self._undeduplicated: set[str] = set()
        """Those that once recognised what was sent twice, and of which the log says that they do not any more."""
        self._some_lines = SomeLines(_log)
        self._sweeper: Repeated | None = None
        self._rounds = 0
        self.each_second: list[Callable[[], Awaitable[None]]] = []
        """What else is to be done now and then."""
        self.group_claims: list[Callable[[PulsarTopic, str], bool]] = []
        """Each returns whether a subscription is a Kafka group's alone."""
        self.book_finders: list[Callable[[PulsarTopic, str], FindBooks | None]] = []
        """See `OpenTopics.find_books`; the first that finds something counts."""
        self.loading: list[Callable[[PulsarTopic], Awaitable[None]]] = []
        """What else is to be read of a topic before it is open."""
        broker.events.topic_deleted.append(self._deleted)
        broker.events.bundle_lost.append(self.non_persistent.let_go)
        broker.events.room_used_up.append(self._send_producers_away)
        broker.events.topic_changed.append(self._changed)

    async def start(self) -> None:
        """Begin to keep cursors now and then, and to look for messages that are too old."""
        await self._broker.metadata.follow(self.policies)
        await self._broker.metadata.follow(self.non_persistent)
        self._sweeper = self._broker.background.repeat(
            "keeping cursors", lambda: _SWEEP_S, self._sweep, essential=True
        )

    async def close(self) -> None:
        """Keep what is to be kept."""
        if self._sweeper is not None:
            await self._sweeper.stop()

        topics = self.all_open()

        def keep(topic: PulsarTopic) -> Callable[[], None]:
            def step() -> None:
                topic.close()
                topic.settle()

            return step

        async def save() -> None:
            await asyncio.gather(*(topic.cursors.save() for topic in topics))

        await end_all(
            "Pulsar's topics",
            [
                *((topic.name, keep(topic)) for topic in topics),
                ("cursors", save),
                ("topics that are not persistent", self.non_persistent.close),
            ],
        )

    def _send_producers_away(self) -> None:
        """Have producers wait until there is room again: refused one by one, each would take its connection down."""
        for topic in self._open.values():
            topic.producers.send_away(wake=False)

    def all_open(self) -> list[PulsarTopic]:
        """Return the partitions of persistent topics that are in use."""
        return list(self._open.values())

    def opened(self, topic: Topic, index: int) -> PulsarTopic | None:
        """Return a partition of a persistent topic that is in use."""
        return self._open.get((topic.topic_id, index))

    def holds(self, topic: PulsarTopic | NonPersistentTopic) -> bool:
        """Whether a partition is open still: it may have been let go of while somebody waited for something else."""
        if isinstance(topic, NonPersistentTopic):
            return self.non_persistent.holds(topic)
        return self._open.get((topic.topic.topic_id, topic.index)) is topic

    def find(self, name: PulsarName) -> Topic | None:
        """Return the topic that a name, with or without partition, belongs to."""
        if not name.persistent:
            return self.non_persistent.find(name)
        return self._broker.get(str(name.topic))

    async def known(self, name: PulsarName) -> Topic | None:
        """Return a topic as `find` does; that it, or its partition, is not there is said after a look at metadata."""
        topic = self.find(name)
        if topic is None or (name.partition or 0) >= topic.partitions:
            await self._broker.learn(name.topic.namespace_name, name.topic)
            topic = self.find(name)
        return topic

    def names(self, namespace: str) -> list[str]:
        """Return what Pulsar calls the persistent topics of ``tenant/namespace``: of those with partitions each."""
        found = []
        for topic in self._broker.topics():
            if topic.name.namespace_name == namespace and not topic.internal:
                found += names_of(topic)
        return found

    async def any(self, name: PulsarName, *, create: bool) -> PulsarTopic | NonPersistentTopic:
        """Return a partition, of a topic that is persistent or not; see `get`."""
        if name.persistent:
            return await self.get(name, create=create)
        return await self.non_persistent.get(name, create=create)

    async def get(self, name: PulsarName, *, create: bool) -> PulsarTopic:
        """Return a partition, opened if need be, its topic created where that is asked for and allowed.

        Raises ``TopicNotFound``, ``NotAllowed`` or what the broker core and storage raise.
        """
        topic = await self.known(name) or await self._create(name, create)
        if topic.internal:
            raise NotAllowed(f"{name} is the broker's own")
        if name.partition is None and topic.partitions > 1:
            raise NotAllowed(f"{name} has {topic.partitions} partitions; name one of them")
        index = name.partition or 0
        if index >= topic.partitions:
            raise TopicNotFound(f"Topic {name} does not exist: there are {topic.partitions} partitions")
        return await self.open(topic, index)

    async def _create(self, name: PulsarName, create: bool) -> Topic:
        if not create:
            check_namespace(self._broker, name)
            raise TopicNotFound(f"Topic {name} does not exist")
        # Who wants partitions asks for how many there are, and makes them so; whoever comes without has one topic.
        return await self.make(name, with_partitions=False)

    async def make(self, name: PulsarName, *, with_partitions: bool) -> Topic:
        """Make a topic by asking for it, with the partitions that its namespace says, or without any.

        Raises ``TopicNotFound`` where that is not allowed, or ``NamespaceNotFound``.
        """
        check_namespace(self._broker, name)
        wanted = self._broker.auto_topics(name.topic)
        if name.partition is not None or not wanted.allowed:
            raise TopicNotFound(f"Topic {name} does not exist")
        partitions = wanted.partitions if with_partitions else None
        try:
            return await self._broker.create_topic(
                name.topic, partitions or 1, partitioned=partitions is not None
            )
        except TopicExists:
            return self._broker.topic(str(name.topic))

    async def open(self, topic: Topic, index: int) -> PulsarTopic:
        """Return a partition of a topic, opened if need be."""
        key = topic.topic_id, index
        found = self._open.get(key)
        if found is not None:
            if found in self._unused:
                self._note_unused(found)
            return found
        return await self._opening.do(key, lambda: self._load(topic, index))

    async def _load(self, topic: Topic, index: int) -> PulsarTopic:
        broker = self._broker
        held = await broker.logs.open_logs.open(topic, index)
        with held.kept():
            cursors = await held.log.cursors()
            made = PulsarTopic(
                topic,
                index,
                held.log,
                cursors,
                broker.store,
                self._conversions,
                self._limits,
                self._clock,
                policies=self.policies.limits(topic),
                deduplicates=self.policies.deduplicates(topic),
                figures=held.figures,
                within_batches=broker.settings.of(PulsarSettings).acknowledgment_at_batch_index_level_enabled,
                turns=self.turns,
                takes_transactions=broker.settings.of(PulsarSettings).transaction_coordinator_enabled,
                registry=self,
            )
            held.hold(made)
        try:
            await made.load()
            for load in self.loading:
                await load(made)
            held.check()
        except BaseException:
            held.leave(made)
            made.close()
            raise
        self._open[topic.topic_id, index] = made
        self._warn_without_deduplication(made)
        made.stir()
        return made

    def _warn_without_deduplication(self, topic: PulsarTopic) -> None:
        """Say once of a topic that it has the state of deduplication, and that the broker no longer deduplicates."""
        if (
            topic.dedup is None
            and DEDUPLICATION_CURSOR in topic.cursors.names()
            and topic.name not in self._undeduplicated
            and self.policies.leaves_deduplication_to_the_broker(topic.topic)
        ):
            self._undeduplicated.add(topic.name)
            self._some_lines.warning(
                "%s stores what producers send twice twice, which it did not before: brokerDeduplicationEnabled is "
                "off. Set it, or deduplicationEnabled of the topic or its namespace: to false if that is meant",
                topic.name,
            )

    def is_groups(self, topic: PulsarTopic, name: str) -> bool:
        """Return whether a subscription is a Kafka group's alone."""
        return any(claims(topic, name) for claims in self.group_claims)

    def find_books(self, topic: PulsarTopic, name: str) -> FindBooks | None:
        return next((found for find in self.book_finders if (found := find(topic, name)) is not None), None)

    def stirred(self, topic: PulsarTopic) -> None:
        if topic not in self._stirred and self.holds(topic):
            self._stirred[topic] = None

    def closed(self, topic: PulsarTopic) -> None:
        """The log has closed, or will at once: clients are sent away, and look the topic up again."""
        self._forget(topic)
        if not topic.topic.deleted:
            self._settle(topic)  # the log keeps its cursors when it closes

    def _settle(self, topic: PulsarTopic) -> None:
        try:
            topic.settle()
        except (LedgerError, RecordsError) as error:
            _log.error("what was acknowledged on %s cannot be kept: %s", topic.name, error)
            topic.stir()

    async def _save(self, topic: PulsarTopic) -> None:
        try:
            await topic.cursors.save()
        except (LedgerError, MetadataError, RecordsError) as error:
            _log.error("cursors of %s cannot be kept: %s", topic.name, error)
            topic.stir()

    def _note_unused(self, topic: PulsarTopic) -> None:
        self._unused.pop(topic, None)
        self._unused[topic] = asyncio.get_running_loop().time()

    def _forget(self, topic: PulsarTopic) -> None:
        """Close a topic, and hear of it no more."""
        self._open.pop((topic.topic.topic_id, topic.index), None)
        for those in (self._stirred, self._unused):
            those.pop(topic, None)
        self._broker.logs.backlogs.remove(TopicBacklog(topic))
        topic.close()
        held = self._broker.logs.open_logs.get(topic.topic, topic.index)
        if held is not None:
            held.leave(topic)

    def _policies_changed(self, name: TopicName) -> None:
        topic = self.find(PulsarName(name))
        if topic is None:
            return
        if name.persistent:
            self._changed(topic)
        else:
            self.non_persistent.changed(topic)

    async def _deleted(self, topic: Topic) -> None:
        await self.policies.forget(topic.name)

    def _deduplicates(self, topic: PulsarTopic) -> bool:
        """Tell whether it should; as it does once nobody has it open any more."""
        return self.policies.deduplicates(topic.topic) if self.holds(topic) else topic.dedup is not None

    def _changed(self, topic: Topic) -> None:
        """A topic that gets more partitions gets other names and message ids: its clients must look again."""
        for index in range(topic.partitions):
            found = self._open.get((topic.topic_id, index))
            if found is None:
                continue
            found.apply(self.policies.limits(topic))
            if self.policies.deduplicates(topic) is not (found.dedup is not None):
                wanted = partial(self._deduplicates, found)
                self._broker.background.once(
                    "switching deduplication of", found.switch_deduplication(wanted), about=found.name
                )
            if found.partition < 0 and topic.partitions > 1:
                self._forget(found)
                self._broker.background.once("keeping cursors of", found.save(), about=found.name)

    async def _sweep(self) -> None:
        self._rounds += 1
        for work in self.each_second:
            try:
                await work()
            except Exception:  # the sweep must go on, and the next round tries again
                _log.exception("what is done every second failed")
        await self.non_persistent.sweep()
        await self._keep_cursors()
        await self._let_go()

    async def _keep_cursors(self) -> None:
        """Keep what was changed, and note what else there is to do about the topics that were."""
        saved: list[PulsarTopic] = []
        async for topic in sliced(self._stirred):
            if topic not in self._stirred:
                continue  # deleted meanwhile
            del self._stirred[topic]
            self._settle(topic)
            saved.append(topic)
        unsaved = [topic async for topic in sliced(saved) if topic.cursors.unsaved]
        for some in batched(unsaved, _SAVED_AT_ONCE):
            await asyncio.gather(*map(self._save, some))
        async for topic in sliced(saved):
            if not self.holds(topic):
                continue
            if topic.is_unsettled:
                topic.stir()
            if topic.is_bounded:
                self._broker.logs.backlogs.add(TopicBacklog(topic))
            if topic.is_unused:
                self._note_unused(topic)

    async def _let_go(self) -> None:
        """Close the topics that nobody has used for a while; who asks for one opens it again."""
        before = asyncio.get_running_loop().time() - _UNUSED_S
        async for topic in sliced(self._taken_unused(before)):
            if topic.is_unused and not topic.is_unsettled:
                self._forget(topic)
                self._settle(topic)
        await self._broker.logs.open_logs.close_unheld()

    def _taken_unused(self, before: float) -> Iterator[PulsarTopic]:
        """Take the topics that nobody has used since then, some at a time: they may be very many."""
        while some := list(
            islice(takewhile(lambda each: self._unused[each] <= before, self._unused), _LOOKED_AT_ONCE)
        ):
            for topic in some:
                since = self._unused.get(topic)
                if since is not None and since <= before:  # otherwise somebody came meanwhile
                    del self._unused[topic]
                    yield topic
