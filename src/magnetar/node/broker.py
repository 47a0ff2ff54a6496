"""The broker core: topics in their namespaces, what is in force for each, and who wants to know when that changes.

Everything is held in memory and written through to the metadata store before a call returns; what other clients of
the store change is followed. Those that keep something per topic (partitions, groups) subscribe to `Events`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.auth.security import Security
from magnetar.base.audit import note_own
from magnetar.base.background import Background
from magnetar.base.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPartitions,
    NamespaceNotFound,
    TooManyTopics,
    TopicExists,
    TopicNotFound,
)
from magnetar.base.offers import Offers
from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.cluster.ownership import Bundle, Ownership, SoleOwner
from magnetar.cluster.parts import ClusterParts
from magnetar.cluster.peers import Peers
from magnetar.coordination.parts import CoordinationParts
from magnetar.coordination.progress import Progress
from magnetar.coordination.shares.linked import LinkedQueues
from magnetar.coordination.transaction_sides import PulsarTransactions
from magnetar.figures.dialects import Dialects
from magnetar.figures.figures import Figures, escaped
from magnetar.ledger.port import LedgerEngine, LedgerPolicy
from magnetar.logs import leader_epochs
from magnetar.logs.backlogs import Backlogs
from magnetar.logs.compaction import Compactions
from magnetar.logs.offloading import Offloading
from magnetar.logs.open_logs import OpenLog, OpenLogs
from magnetar.logs.parts import LogParts
from magnetar.metadata import BadVersion, InvalidPath, MetadataStore
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.when_there import WhenThere
from magnetar.node.conditions import Conditions, HealthParts
from magnetar.node.events import Events
from magnetar.serving.connections import Connections
from magnetar.serving.idle_poll import IdlePoll
from magnetar.serving.memory import MemoryBudget
from magnetar.serving.parts import ServingParts
from magnetar.settings.metrics import PULSAR_BUCKETS
from magnetar.settings.settings import Settings
from magnetar.topics.catalog import Catalog, CatalogEvents, topic_path
from magnetar.topics.dynamic import DynamicSettings, check_dynamic
from magnetar.topics.effective import Authority, with_overrides
from magnetar.topics.identity import Identity, new_id, take_identity
from magnetar.topics.just_deleted import JustDeleted
from magnetar.topics.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, Naming, TopicName
from magnetar.topics.namespaces import POLICIES, Namespaces
from magnetar.topics.new_topic import NewTopic
from magnetar.topics.policies import AutoTopics, NamespacePolicies
from magnetar.topics.topic import MAX_PARTITIONS, Topic, is_reserved, refuse_too_many
from magnetar.topics.topic_config import TopicConfig, check_overrides, check_together

if TYPE_CHECKING:
    from magnetar.topics.client_quotas import ClientQuotas

_STRANGERS_PART = 8  # of the budget for clients' bytes, for those who have not said who they are
_NO_POLICIES = NamespacePolicies()
_CLIENT_QUOTAS = "/magnetar/client-quotas"
_log = logging.getLogger("magnetar.broker")


class Broker:
    """One broker. ``await start()`` before use; the engine must have been started before that."""

    def __init__(
        self,
        settings: Settings,
        store: MetadataStore,
        engine: LedgerEngine,
        ownership: Ownership | None = None,
        *,
        peers: Peers | None = None,
        questions: int | None = None,
    ) -> None:
        self.settings = settings
        """What is in force now, with all that was changed while running."""
        self.store = store
        self.metadata = MetadataCache(store)
        """What is kept in memory of the store, and followed; what lies there is written through it alone."""
        self.engine = engine
        self.events = Events()
        self.just_deleted = JustDeleted()
        self.offers = Offers()
        self.figures = Figures()
        """What ``/metrics`` tells; handlers add their sources."""
        self.background = Background()
        self.health = HealthParts(Conditions(), [])
        self.figures.sources.append(self.health.conditions.figures)
        self.serving = ServingParts(
            Connections(lambda: self.settings),
            IdlePoll(settings.connections.idle_poll_time_us / 1e6),
            MemoryBudget(
                settings.connections.memory_requests_bytes,
                settings.connections.memory_requests_bytes // _STRANGERS_PART,
            ),
        )
        progress = Progress(settings.names.linked_subscriptions)
        self.coordination = CoordinationParts(
            progress, LinkedQueues(progress.is_linked), PulsarTransactions()
        )
        ownership = ownership or SoleOwner(settings.node.node_id, settings.node.broker_rack)
        between = BetweenBrokers(lambda: len(ownership.brokers()) == 1)
        self.cluster = ClusterParts(ownership, between, peers, questions)
        ownership.on_lost.append(self._lost)
        ownership.on_acquired.append(self._acquired)
        dialects = Dialects(settings.metrics.metrics_dialects, escaped(ownership.cluster))
        self.figures.dialects = dialects
        open_logs = OpenLogs(engine, store, ownership, self.ledger_policy)
        open_logs.counts_entries = dialects.has(PULSAR_BUCKETS)
        self.events.topic_changed.append(open_logs.apply_policy)
        self.logs = LogParts(
            open_logs,
            Backlogs(lambda: self.settings),
            Compactions(lambda: self.settings, self.background),
            Offloading(self, open_logs, self.serving.memory, self.background),
        )
        self.namespaces = Namespaces(self.metadata, ownership.cluster)
        self.quotas_of_clients = WhenThere(_CLIENT_QUOTAS, self._made_client_quotas)
        self.naming = Naming(
            settings.names.kafka_tenant,
            settings.names.kafka_namespace,
            settings.names.kafka_metadata_tenant,
            settings.names.kafka_metadata_namespace,
        )
        self.security = Security(
            settings.security,
            self.namespaces,
            self.metadata,
            self.naming,
            settings.given,
            by_tenant=settings.names.kafka_enable_multi_tenant_metadata,
            by_listener=settings.security_by_listener,
        )
        self.identity: Identity
        self.authority: Authority
        self._static = settings
        self._dynamic = DynamicSettings(self.metadata, settings.node.node_id, self._dynamic_changed)
        self.namespaces.policies_changed.append(self._policies_changed)
        self._catalog = Catalog(
            self.metadata,
            self.naming,
            self._config_of,
            CatalogEvents(
                lambda topic: self.events.tell(self.events.topic_created, topic),
                lambda topic: self._refresh([topic]),
                self._hidden,
            ),
        )
        self._deleting: set[Topic] = set()
        """Whose deletion this broker sees to."""
        self._base: dict[str, TopicConfig] = {}
        self._gate = asyncio.Lock()

    async def start(self) -> None:
        """Read everything that is stored, and finish what a crash interrupted."""
        self.identity = await take_identity(
            self.store, self.settings.node.node_id, self.cluster.ownership.cluster
        )
        self._apply_dynamic()
        await self.metadata.follow(self._dynamic)
        await self.metadata.follow(self.namespaces)
        await self.security.start()
        await self.metadata.follow(self.quotas_of_clients)
        await self.namespaces.create(f"{self.naming.tenant}/{self.naming.namespace}")
        await self.namespaces.create(f"{self.naming.metadata_tenant}/{self.naming.metadata_namespace}")
        await self.metadata.follow(self._catalog)
        for topic in list(self._catalog.leaving.values()):
            await self._finish_deletion(topic)

    def _made_client_quotas(self) -> ClientQuotas:
        from magnetar.topics.client_quotas import ClientQuotas

        return ClientQuotas(self.metadata)

    # Asking.

    @property
    def client_quotas(self) -> ClientQuotas:
        """What clients may, for those who are given a quota."""
        return self.quotas_of_clients.get()

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes or changes, so that answers can be cached."""
        return self._catalog.version

    def get(self, name: str) -> Topic | None:
        """Return the topic that a client means by any of the three forms of its name."""
        found = self._catalog.by_name.get(name)
        if found is None and "/" in name:
            found = self._catalog.by_name.get(self.naming.kafka_name(self.naming.parse(name)))
        return found

    async def known(self, name: str) -> Topic | None:
        """Return a topic as `get` does; one of several brokers looks at metadata before it says that there is none.

        Clients make a topic through one broker, and a moment later ask another. Raises `InvalidTopic`, `MetadataError`.
        """
        topic = self.get(name)
        if topic is None and len(self.cluster.ownership.brokers()) > 1:
            parsed = self.naming.parse(name)
            await self.learn(parsed.namespace_name, parsed)
            topic = self.get(name)
        return topic

    async def learn(self, namespace: str, topic: TopicName | None = None) -> None:
        """Know of ``tenant/namespace``, and of a topic, what metadata say now: another broker may just have made it.

        For answers that are final to clients: where nothing is they give up, or make something else. Raises
        `MetadataError`.
        """
        topics = () if topic is None else (topic_path(topic),)
        with suppress(InvalidPath):  # what can be no namespace's name nobody has made
            await self.metadata.refresh((f"{POLICIES}/{namespace}", *topics))

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id."""
        return self._catalog.by_id.get(topic_id)

    def topic(self, name: str) -> Topic:
        """Return a topic, or raise `TopicNotFound`."""
        found = self.get(name)
        if found is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return found

    def topics(self) -> list[Topic]:
        """Return all topics."""
        return list(self._catalog.by_name.values())

    def topics_if_few(self, most: int) -> tuple[int, list[Topic]]:
        """Return all topics, and a number that changes with them; (0, []) if there are more than ``most``."""
        few = len(self._catalog.by_name) <= most
        return (self._catalog.version, self.topics()) if few else (0, [])

    def visible(self, topic: Topic) -> bool:
        """Whether Kafka's clients may see the topic (``kopAllowedNamespaces``)."""
        return topic.internal or self.allows(topic.name)

    def allows(self, name: TopicName) -> bool:
        """Whether Kafka's clients may have topics in this namespace."""
        allowed = self.settings.names.kop_allowed_namespaces
        if not allowed or name.namespace_name in allowed or name.local in INTERNAL_TOPICS:
            return True
        return any(self._fits(pattern, name) for pattern in allowed)

    def _fits(self, pattern: str, name: TopicName) -> bool:
        tenant, _, namespace = pattern.replace("${namespace}", self.naming.namespace).partition("/")
        # Each client's own tenant, says KoP; in others it sees only what it was granted.
        return tenant in (name.tenant, "${tenant}") and namespace in (name.namespace, "*")

    def ledger_policy(self, topic: Topic) -> LedgerPolicy:
        """Return how the topic's managed ledgers are kept, as things stand."""
        return self.authority.ledger_policy(topic, self.topic_policies(topic))

    async def open_whole(self, topic: Topic, index: int) -> OpenLog:
        """Return a partition's log, opened if need be, once all is known that only its entries tell; see `Events`."""
        for learn in self.events.history_leaves:
            await learn(topic, index)
        return await self.logs.open_logs.open(topic, index)

    def topic_policies(self, topic: Topic) -> NamespacePolicies:
        """Return the policies of the namespace that a topic lies in, or will lie in."""
        namespace = topic.name.namespace_name
        return self.namespaces.policies(namespace) if namespace in self.namespaces else _NO_POLICIES

    async def troubles(self) -> list[str]:
        """Return, in words, what keeps this broker from doing what it promises; nothing if it is well."""
        await self.store.get("/admin/clusters")  # so that a store that does not answer shows
        found = [] if self.engine.failed is None else [str(self.engine.failed)]
        if not await self.store.is_writable():
            found.append(f"the metadata store cannot be written to: {self.store.trouble}")
        return found + self.background.troubles()

    def waits_for(self) -> list[str]:
        """Return, in words, what this broker still waits for before it serves everybody; nothing once it is ready."""
        return [word for waits in self.health.readiness for word in waits()]

    # Changing.

    async def create_topic(
        self,
        name: TopicName | str,
        partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        partitioned: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Make one topic and give it; raise what `plan` raises, or `TopicExists`."""
        parsed = self.naming.parse(name) if isinstance(name, str) else name
        (made,) = await self.create_topics(
            [NewTopic(parsed, partitions, configs or {}, partitioned, properties or {})]
        )
        if isinstance(made, BrokerError):
            raise made
        return made

    async def create_topics(self, wanted: Iterable[NewTopic]) -> list[Topic | BrokerError]:
        """Make topics with one write to disk; each fails or succeeds for itself.

        Raises `TooManyPartitions`, and makes none, where all together would have more than one request may make:
        every topic lists its partitions to each client that asks for it.
        """
        wanted = list(wanted)
        refuse_too_many(sum(max(0, self._partitions_of(new)) for new in wanted))
        async with self._gate:
            made: list[Topic | BrokerError] = []
            seen: set[TopicName] = set()
            for new in wanted:
                try:
                    topic = self.plan(new)
                    if topic.name in seen:
                        raise TopicExists(f"Topic '{topic.kafka_name}' already exists.")
                    self._check_room(topic, (each for each in made if isinstance(each, Topic)))
                    if (leaving := self._catalog.leaving.get(topic.kafka_name)) is not None:
                        await self._finish_deletion(leaving)
                    seen.add(topic.name)
                    made.append(topic)
                except BrokerError as error:
                    made.append(error)
            taken = await self._add([topic for topic in made if isinstance(topic, Topic)])
        return [self._made(topic, taken) if isinstance(topic, Topic) else topic for topic in made]

    def _made(self, planned: Topic, taken: Container[TopicName]) -> Topic | BrokerError:
        """Return the topic that came of a plan; somebody else may have made it, or deleted it, meanwhile."""
        if planned.name in taken:
            return TopicExists(f"Topic '{planned.kafka_name}' already exists.")
        return self._catalog.by_name.get(planned.kafka_name, planned)

    async def create_with(self, new: NewTopic, prepare: Callable[[Topic], Awaitable[None]]) -> Topic:
        """Make one topic of what ``prepare`` stores for it; raise what `plan_free` or ``prepare`` raises.

        Nobody else makes or deletes topics until both are done, and nobody finds the topic before.
        """
        async with self._gate:
            topic = self.plan_free(new)
            await prepare(topic)
            made = self._made(topic, await self._add([topic]))
        if isinstance(made, BrokerError):
            raise made
        return made

    def plan_free(self, new: NewTopic) -> Topic:
        """Return the topic as `plan` does; raise `TopicExists` too while an older one of its name is being deleted."""
        topic = self._planned(new)
        self._check_room(topic)
        if topic.kafka_name in self._catalog.leaving:
            raise TopicExists(f"Topic '{topic.kafka_name}' is still being deleted.")
        return topic

    def plan(self, new: NewTopic) -> Topic:
        """Return the topic as it would be, without making it.

        Raises `TopicExists`, `InvalidPartitions`, `InvalidConfig` or `NamespaceNotFound`.
        """
        local = new.name.local
        if local in INTERNAL_TOPICS:
            # The coordinators spread their groups over as many, whatever somebody else would like.
            count = self.internal_partitions(local)
            is_there = self.naming.kafka_name(new.name) in self._catalog.by_name
            if new.partitions not in (None, count) and not is_there:
                raise InvalidPartitions(f"{local} is the coordinators' own and has {count} partitions.")
            new = new._replace(partitions=count)
        return self._planned(new)

    def _planned(self, new: NewTopic) -> Topic:
        kafka_name = self.naming.kafka_name(new.name)
        if kafka_name in self._catalog.by_name:
            raise TopicExists(f"Topic '{kafka_name}' already exists.")
        partitions = self._partitions_of(new)
        if partitions <= 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        namespace = new.name.namespace_name
        if namespace not in self.namespaces and not self.settings.names.auto_create_namespaces_enable:
            raise NamespaceNotFound(f"namespace {namespace} does not exist")
        internal = self._internal_configs() if new.name.local in INTERNAL_TOPICS else {}
        overrides = check_overrides((internal | dict(new.configs)).items())
        config = with_overrides(self._namespace_config(namespace), overrides)
        check_together(config)
        topic = Topic(
            new.name,
            kafka_name,
            new_id(),
            partitions,
            overrides,
            config,
            made_partitioned=new.partitioned,
            properties=_free_properties(new.properties),
        )
        self.logs.offloading.check(topic, config)
        return topic

    def _partitions_of(self, new: NewTopic) -> int:
        return self.settings.topics.num_partitions if new.partitions is None else new.partitions

    def _check_room(self, new: Topic, others: Iterable[Topic] = ()) -> None:
        """Raise `TooManyTopics` if the namespace may not have a topic more; ``others`` are made together with it."""
        namespace = new.name.namespace_name
        most = self.topic_policies(new).limits.max_topics
        most = self.settings.names.max_topics_per_namespace if most is None else most
        if most <= 0 or new.internal:
            return
        there = sum(
            each.partitions
            for each in (*self.topics(), *others)
            if each.name.namespace_name == namespace and not each.internal
        )
        if there + new.partitions > most:
            raise TooManyTopics("Exceed maximum number of topics in namespace.")

    def auto_topics(self, name: TopicName) -> AutoTopics:
        """Return whether and how a topic is made by asking for it: as its namespace says, otherwise the settings."""
        known = name.namespace_name in self.namespaces
        said = self.namespaces.policies(name.namespace_name).auto_topics if known else None
        return AutoTopics(self.settings.topics.auto_create_topics_enable) if said is None else said

    async def auto_create(self, name: str) -> Topic | None:
        """Make an unknown topic that a client asked for, or give None where settings forbid it."""
        if name in INTERNAL_TOPICS:
            return (
                await self.create_internal(name) if self.settings.topics.auto_create_topics_enable else None
            )
        parsed = self.naming.parse(name)
        wanted = self.auto_topics(parsed)
        if not wanted.allowed:
            return None
        try:
            return await self.create_topic(
                parsed, wanted.partitions, partitioned=wanted.partitions is not None
            )
        except TopicExists:
            return self.get(name)

    async def create_internal(self, name: str) -> Topic:
        """Return one of the coordinators' topics, made with their settings if it was not there."""
        try:
            return self.get(name) or await self.create_topic(name)
        except TopicExists:
            return self.topic(name)

    def internal_partitions(self, local: str) -> int:
        """Return how many partitions a coordinators' topic gets when it is made, by the end of its name."""
        topics = self.settings.topics
        name = local.rpartition("/")[2]
        if name == CONSUMER_OFFSETS:
            return topics.offsets_topic_num_partitions
        if name == SHARE_GROUP_STATE:
            return topics.share_coordinator_state_topic_num_partitions
        return topics.transaction_state_log_num_partitions

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all it holds; raise `TopicNotFound`.

        It is gone for everybody at once; should the broker die before its ledgers are deleted, the next start
        deletes them.
        """
        await self._deleted(self.topic(name), lambda: False)

    async def delete_unused_topic(self, name: str, is_used: Callable[[], bool]) -> bool:
        """Do as `delete_topic` unless the topic is used, which is asked at the last moment; tell whether it did."""
        return await self._deleted(self.topic(name), is_used)

    async def _deleted(self, topic: Topic, is_used: Callable[[], bool]) -> bool:
        # Whoever asked may go away; what has begun is finished all the same.
        return await asyncio.shield(
            self.background.once(
                "deletion of topic",
                self._delete(topic, is_used),
                about=topic.kafka_name,
                answers=(BrokerError,),
            )
        )

    async def grow_topic(self, name: str, partitions: int, *, validate_only: bool = False) -> Topic:
        """Add partitions to a topic, to be ``partitions`` in all; raise `TopicNotFound` or `InvalidPartitions`.

        What handlers keep of each partition is made before this returns; where that fails, the partitions are there.
        """
        while True:
            topic = self.growable_topic(name, partitions)
            if validate_only:
                return topic
            before = topic.partitions
            if await self._changed(topic, replace(topic, partitions=partitions)):
                for told in tuple(self.events.topic_grown):
                    await told(topic, before)
                return topic

    def growable_topic(self, name: str, partitions: int) -> Topic:
        """Return the topic that `grow_topic` would give more partitions; raise what that raises."""
        topic = self.topic(name)
        if topic.internal:
            raise InvalidPartitions(f"{topic.kafka_name} is the coordinators' own and keeps its partitions.")
        if partitions == topic.partitions:
            raise InvalidPartitions(f"Topic already has {partitions} partition(s).")
        if partitions < topic.partitions:
            raise InvalidPartitions(
                f"The topic {topic.kafka_name} currently has {topic.partitions} partition(s); "
                f"{partitions} would not be an increase."
            )
        if partitions > MAX_PARTITIONS:
            raise InvalidPartitions(f"A topic may have {MAX_PARTITIONS} partitions.")
        refuse_too_many(partitions - topic.partitions)
        self._check_room(replace(topic, partitions=partitions - topic.partitions))
        return topic

    async def set_topic_config(
        self, name: str, overrides: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Topic:
        """Replace all of a topic's own configuration; raise `TopicNotFound` or `InvalidConfig`."""
        return await self.change_topic_config(name, lambda _: overrides, validate_only=validate_only)

    async def change_topic_config(
        self,
        name: str,
        change: Callable[[Topic], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Put what ``change`` makes of a topic in the place of its own configuration.

        It is called again where somebody else was faster. Raises `TopicNotFound` or `InvalidConfig`.
        """
        while True:
            topic = self.topic(name)
            checked = check_overrides(change(topic).items())
            config = with_overrides(self._namespace_config(topic.name.namespace_name), checked)
            check_together(config)
            self.logs.offloading.check(topic, config)
            if validate_only or checked == topic.overrides:
                return topic
            if await self._changed(topic, replace(topic, overrides=checked)):
                return topic

    async def change_topic_properties(self, name: str, change: Callable[[Topic], Mapping[str, str]]) -> None:
        """Put what ``change`` makes of a topic in the place of what Pulsar's users say of it.

        It is called again where somebody else was faster. Raises `TopicNotFound` or `InvalidConfig`.
        """
        while True:
            topic = self.topic(name)
            wanted = _free_properties(change(topic))
            if wanted == topic.properties or await self._changed(topic, replace(topic, properties=wanted)):
                return

    async def set_dynamic(
        self, texts: Mapping[str, str], *, for_all: bool, validate_only: bool = False
    ) -> None:
        """Replace the settings changed while running, of this broker or of all; raise `InvalidConfig`."""
        await self.change_dynamic(lambda _: texts, for_all=for_all, validate_only=validate_only)

    async def change_dynamic(
        self,
        change: Callable[[dict[str, str]], Mapping[str, str]],
        *,
        for_all: bool,
        validate_only: bool = False,
    ) -> None:
        """Put what ``change`` makes of the settings changed while running in their place; raise `InvalidConfig`."""

        def plan() -> Mapping[str, str]:
            texts = change(dict(self._dynamic.default if for_all else self._dynamic.own))
            for name, text in texts.items():
                check_dynamic(self.settings, name, text)
            return texts

        if validate_only:
            plan()
        else:
            await self._dynamic.change(plan, for_all=for_all)

    async def set_policies(self, namespace: str, text: bytes) -> None:
        """Replace a namespace's policies (Pulsar's JSON); raise `NamespaceNotFound` or `InvalidPolicy`."""
        await self.namespaces.set_policies(namespace, text)

    # How it is kept.

    async def _changed(self, topic: Topic, wanted: Topic) -> bool:
        """Keep a change of a topic; return whether nobody else was faster."""
        try:
            await self._catalog.change(topic, wanted)
        except BadVersion:
            return False
        return True

    async def _add(self, topics: list[Topic]) -> set[TopicName]:
        for namespace in {topic.name.namespace_name for topic in topics}:
            await self.namespaces.create(namespace)
        return await self._catalog.add(topics)

    def _dynamic_changed(self) -> None:
        self._apply_dynamic()
        self._refresh(self._catalog.by_name.values())
        self.events.tell(self.events.settings_changed, self.settings)

    def _policies_changed(self, namespace: str) -> None:
        self._base.pop(namespace, None)
        self._refresh(topic for topic in self.topics() if topic.name.namespace_name == namespace)

    def _hidden(self, topic: Topic) -> None:
        """A topic is deleted; if another client of the store did that, whoever holds it here lets go of it."""
        self.just_deleted.note(topic.name)
        self.logs.open_logs.forget(topic)
        if topic not in self._deleting:
            self.background.once("deletion of topic", self._deleted_elsewhere(topic), about=topic.kafka_name)

    async def _deleted_elsewhere(self, topic: Topic) -> None:
        """Let go of what another broker deletes, before one of its name can be opened here."""
        try:
            for ledger in topic.ledger_names():
                await self.engine.forget(ledger)
        finally:  # the topic is gone whatever storage says: whoever holds something of it must not keep it
            await self.events.tell_deleted(topic)

    async def _delete(self, topic: Topic, is_used: Callable[[], bool]) -> bool:
        async with self._gate:
            if topic.deleted:
                raise TopicNotFound(f"topic {topic.kafka_name} does not exist")
            if is_used():
                return False
            self._deleting.add(topic)
            try:
                await self._catalog.hide(topic)
                await self.events.tell_deleted(topic)
                await self._finish_deletion(topic)
            finally:
                self._deleting.discard(topic)
            return True

    async def _finish_deletion(self, topic: Topic) -> None:
        for ledger in topic.ledger_names():
            await self.engine.delete(ledger)
            await asyncio.sleep(0)  # there may be thousands, and an engine need not wait for anything
        await leader_epochs.forget(self.store, topic)
        await self._catalog.forget(topic)

    async def _lost(self, bundle: Bundle) -> None:
        owner = self.cluster.ownership.owner_of(bundle)
        note_own("lost", "bundle", str(bundle), owner="none" if owner is None else owner.node_id)
        for told in self.events.bundle_lost:
            try:
                await told(bundle)
            except Exception:  # its logs have to be let go of all the same
                _log.exception("%s is given away, but somebody failed when it was told", bundle)
        await self.logs.open_logs.give_away(bundle)

    async def _acquired(self, bundle: Bundle) -> None:
        if len(self.cluster.ownership.brokers()) > 1:
            note_own("acquired", "bundle", str(bundle))
        for told in self.events.bundle_acquired:
            try:
                await told(bundle)
            except Exception:
                _log.exception("%s has come, but somebody failed when it was told", bundle)

    def _apply_dynamic(self) -> None:
        self.settings = self._dynamic.settings(self._static)
        self.authority = Authority(self._static, self.settings, self._dynamic)
        self._base.clear()

    def _refresh(self, topics: Iterable[Topic]) -> None:
        self._catalog.version += 1
        for topic in topics:
            topic.config = self._config_of(topic)
            self.events.tell(self.events.topic_changed, topic)

    def _config_of(self, topic: Topic) -> TopicConfig:
        return with_overrides(self._namespace_config(topic.name.namespace_name), topic.overrides)

    def _internal_configs(self) -> dict[str, str | None]:
        """What a coordinator's topic is made with, whoever makes it: without, its memory would expire."""
        segment_bytes = str(self.settings.topics.offsets_topic_segment_bytes)
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "entry.format": "kafka",
            "segment.bytes": segment_bytes,
        }

    def _namespace_config(self, namespace: str) -> TopicConfig:
        """Return what topics of a namespace share; one object for all that say nothing themselves."""
        if namespace not in self.namespaces:
            return self.authority.namespace_config(_NO_POLICIES)
        if (base := self._base.get(namespace)) is None:
            base = self._base[namespace] = self.authority.namespace_config(
                self.namespaces.policies(namespace)
            )
        return base


def _free_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what users may say of a topic; raise `InvalidConfig` for names that are the broker's own."""
    if taken := sorted(filter(is_reserved, properties)):
        raise InvalidConfig(f"Property {taken[0]} is the broker's own")
    return dict(properties)
