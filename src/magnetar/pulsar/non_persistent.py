"""Topics that are not persistent, ``non-persistent://tenant/namespace/t``: messages go to who listens, no further.

They are Pulsar's alone: Kafka's clients do not see them. The number of partitions of one that has several is kept at
Pulsar's own path, ``/admin/partitioned-topics/TENANT/NAMESPACE/non-persistent/TOPIC``; any other one exists from when
somebody first asks for it until nobody has used it for a minute.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

from magnetar.base.errors import InvalidPartitions, NamespaceNotFound, TopicExists, TopicNotFound
from magnetar.base.slices import sliced
from magnetar.cluster.ownership import Bundle, NotOwned
from magnetar.ledger.port import Position
from magnetar.metadata import MUST_NOT_EXIST, BadVersion, Delete, MetadataCorrupt, Put, Stored
from magnetar.node.broker import Broker
from magnetar.pulsar.dispatch.base import AnySubscription
from magnetar.pulsar.dispatch.deliveries import Delivery
from magnetar.pulsar.dispatch.non_persistent import NonPersistentSubscription
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import ConsumerBusy, NotAllowed, SubscriptionNotFound
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.policies import TopicPolicies
from magnetar.pulsar.producers import Producer, Producers
from magnetar.pulsar.rate_limits import RateLimit, renewed
from magnetar.pulsar.settings import PulsarSettings
from magnetar.records.pulsar_entries import Sent
from magnetar.topics.catalog import TOPICS, topic_path
from magnetar.topics.limits import Limits
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic, refuse_too_many
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata

_IDLE_MS = 60_000
PLACE = Position(0, 0)
"""The id that Pulsar gives to all messages of these topics."""


class NonPersistentTopic:
    """One partition; ``partition`` is -1 where the topic has but one."""

    dedup = None
    last_done = None

    def __init__(self, topic: Topic, index: int, policies: Limits, clock: Callable[[], int]) -> None:
        self.topic = topic
        self.index = index
        self.partition = index if topic.partitioned else -1
        self.producers = Producers()
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self.entries = self.messages_in = self.bytes_in = 0
        self._left_messages = self._left_bytes = self._left_dropped = 0
        self._clock = clock
        self._used_ms = clock()
        self.publish_rate: RateLimit | None = None
        self.subscribed: dict[tuple[str, str, int], tuple[float, int]] = {}
        """By consumer: since when, and how often, it has subscribed."""
        self.limits = policies
        self.apply(policies)

    def apply(self, policies: Limits) -> None:
        """Have policies take effect."""
        self.limits = policies
        self.publish_rate = renewed(self.publish_rate, policies.publish_rate, asyncio.get_running_loop().time)

    @property
    def name(self) -> str:
        """What clients call it."""
        name = str(self.topic.name)
        return name if self.partition < 0 else f"{name}-partition-{self.partition}"

    # -- producing

    def publish(self, producer: Producer, sent: Sent, metadata: MessageMetadata) -> None:
        """Send on what a producer sent, to all subscriptions."""
        producer.messages += sent.messages
        producer.bytes += len(sent.framed)
        self.entries += 1
        self.messages_in += sent.messages
        self.bytes_in += len(sent.framed)
        if self.subscriptions:
            body = bytes(sent.framed)  # the memory it came in is used again
            delivery = Delivery(PLACE, 0, sent.messages, body, metadata, False)
            for subscription in self.subscriptions.values():
                subscription.dispatch(delivery)

    # -- subscribing

    async def subscription(self, wanted: Wanted) -> NonPersistentSubscription:
        """Return the subscription that a consumer asks for, made if need be; raise ``ConsumerBusy``."""
        found = self.subscriptions.get(wanted.subscription)
        if found is None:
            most = self.limits.max_subscriptions
            if most and len(self.subscriptions) >= most:
                raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {self.name}")
            found = NonPersistentSubscription(wanted.subscription, wanted.sub_type, division=wanted.division)
            found.properties = dict(wanted.properties or {})
            self.subscriptions[wanted.subscription] = found
        elif found.sub_type != wanted.sub_type:
            raise ConsumerBusy("Subscription is of different type")
        return found

    def left(self, subscription: AnySubscription) -> None:
        """A consumer left: the subscription ends with its last one."""
        found = self.subscriptions.get(subscription.name)
        if found is subscription and not subscription.consumers:
            self._forget(subscription.name)

    def unsubscribe(self, name: str) -> None:
        """End a subscription; its consumers are sent away."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"Subscription {name} not found")
        subscription.disconnect()
        self._forget(name)

    def _forget(self, name: str) -> None:
        gone = self.subscriptions.pop(name)
        gone.close()
        self._left_messages += gone.delivered_messages
        self._left_bytes += gone.delivered_bytes
        self._left_dropped += gone.dropped_messages

    def send_away(self) -> None:
        """Close all producers and consumers; their clients come back by themselves."""
        self.producers.send_away()
        for name in list(self.subscriptions):
            self.unsubscribe(name)

    # -- figures

    @property
    def users(self) -> int:
        """How many producers and consumers are connected."""
        return len(self.producers.by_name) + sum(len(each.consumers) for each in self.subscriptions.values())

    @property
    def delivered_messages(self) -> int:
        """How many messages were sent, by subscriptions that ended too."""
        return self._left_messages + sum(each.delivered_messages for each in self.subscriptions.values())

    @property
    def delivered_bytes(self) -> int:
        """How many bytes were sent, by subscriptions that ended too."""
        return self._left_bytes + sum(each.delivered_bytes for each in self.subscriptions.values())

    @property
    def dropped_messages(self) -> int:
        """How many messages some subscription dropped."""
        return self._left_dropped + sum(each.dropped_messages for each in self.subscriptions.values())

    def is_idle(self) -> bool:
        """Whether nobody has used it for a while."""
        now_ms = self._clock()
        if self.users or self.producers.waiting:
            self._used_ms = now_ms
        return now_ms - self._used_ms > _IDLE_MS


def check_namespace(broker: Broker, name: PulsarName) -> None:
    """Raise ``NamespaceNotFound`` for a topic whose tenant or namespace is not there: asking makes topics alone."""
    if name.topic.namespace_name not in broker.namespaces:
        raise NamespaceNotFound(
            f"Topic {name} not found: namespace {name.topic.namespace_name} does not exist"
        )


class NonPersistentTopics:
    """All of this broker's."""

    def __init__(self, broker: Broker, policies: TopicPolicies, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._policies = policies
        broker.namespaces.changed.append(self._namespaces_changed)
        broker.events.settings_changed.append(lambda _: self._namespaces_changed())
        self._clock = clock
        self._partitioned: dict[TopicName, Topic] = {}
        self._open: dict[tuple[TopicName, int], NonPersistentTopic] = {}

    # -- following what is stored: which topics have partitions

    root = TOPICS

    def known(self) -> Iterator[str]:
        return map(topic_path, self._partitioned)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Take over what is stored of a topic with partitions."""
        parts = path.removeprefix(TOPICS + "/").split("/", 3)
        if len(parts) != 4 or parts[2] != "non-persistent":
            return
        name = TopicName.from_metadata(parts[0], parts[1], parts[3])
        name = TopicName(name.tenant, name.namespace, name.local, persistent=False)
        if stored is None:
            if (gone := self._partitioned.pop(name, None)) is not None:
                self._send_away(gone)
            return
        topic = self._partitioned.setdefault(name, _partitioned(name, 0))
        topic.partitions, topic.stored_version = _decode(path, stored.value), stored.version

    # -- asking

    def all_open(self) -> list[NonPersistentTopic]:
        """Return the partitions that are in use."""
        return list(self._open.values())

    def holds(self, topic: NonPersistentTopic) -> bool:
        """Whether a partition is in use still."""
        return self._open.get((topic.topic.name, topic.index)) is topic

    def open_of(self, topic: Topic) -> list[NonPersistentTopic]:
        """Return the partitions of a topic that are in use."""
        return [each for each in self._open.values() if each.topic is topic]

    def find(self, name: PulsarName) -> Topic | None:
        """Return the topic that a name, with or without partition, belongs to."""
        found = self._partitioned.get(name.topic)
        if found is None and (plain := self._open.get((name.topic, 0))) is not None:
            return plain.topic
        return found

    def names(self, namespace: str) -> list[str]:
        """Return what Pulsar calls the topics of ``tenant/namespace`` that are in use, each partition."""
        return sorted(
            each.name for each in self._open.values() if each.topic.name.namespace_name == namespace
        )

    def topics(self, namespace: str) -> Iterator[Topic]:
        """Return the topics of ``tenant/namespace``, those with partitions whether in use or not."""
        found = {each.topic.name: each.topic for each in self._open.values()} | self._partitioned
        return (each for each in found.values() if each.name.namespace_name == namespace)

    def partitioned(self, namespace: str) -> list[str]:
        """Return the topics of ``tenant/namespace`` that have partitions."""
        return sorted(str(name) for name in self._partitioned if name.namespace_name == namespace)

    async def get(self, name: PulsarName, *, create: bool) -> NonPersistentTopic:
        """Return a partition, made where that is asked for and allowed.

        Raises ``TopicNotFound``, ``NamespaceNotFound``, `NotOwned` or ``NotAllowed``.
        """
        if not self._broker.settings.of(PulsarSettings).enable_non_persistent_topics:
            raise NotAllowed("Broker is not configured to serve non-persistent topics")
        ownership = self._broker.cluster.ownership
        if not ownership.is_mine(name.topic, name.partition or 0):
            raise NotOwned(str(name), ownership.owner(name.topic, name.partition or 0))
        topic = self.find(name)
        if topic is None or (name.partition or 0) >= topic.partitions:
            await self._broker.learn(name.topic.namespace_name, name.topic)
            topic = self.find(name)
        if topic is None:
            check_namespace(self._broker, name)
            wanted = self._broker.auto_topics(name.topic)
            if name.partition is not None or not create or not wanted.allowed:
                raise TopicNotFound(f"Topic {name} does not exist")
            return await self.create(name.topic)
        if name.partition is None and topic.partitions > 1:
            raise NotAllowed(f"{name} has {topic.partitions} partitions; name one of them")
        index = name.partition or 0
        if index >= topic.partitions:
            raise TopicNotFound(f"Topic {name} does not exist: there are {topic.partitions} partitions")
        return self._opened(topic, index)

    def _opened(self, topic: Topic, index: int) -> NonPersistentTopic:
        found = self._open.get((topic.name, index))
        if found is None:
            found = self._open[topic.name, index] = NonPersistentTopic(
                topic, index, self._policies.limits(topic), self._clock
            )
        return found

    # -- changing

    async def create(self, name: TopicName) -> NonPersistentTopic:
        """Make a topic without partitions; raise ``TopicExists``, ``NamespaceNotFound`` or ``NotAllowed``."""
        await self._check_new(name)
        return self._opened(Topic(name, "", b"", 1), 0)

    async def create_partitioned(self, name: TopicName, partitions: int) -> None:
        """Make a topic with so many partitions.

        Raises ``TopicExists``, ``NamespaceNotFound``, ``NotAllowed`` or ``TooManyPartitions``.
        """
        refuse_too_many(partitions)
        await self._check_new(name)
        try:
            await self._keep(name, partitions, MUST_NOT_EXIST)
        except BadVersion:
            raise TopicExists("This topic already exists") from None

    async def _check_new(self, name: TopicName) -> None:
        broker = self._broker
        if not broker.settings.of(PulsarSettings).enable_non_persistent_topics:
            raise NotAllowed("Broker is not configured to serve non-persistent topics")
        if self.find(PulsarName(name)) is not None:
            raise TopicExists("This topic already exists")
        namespace = name.namespace_name
        if namespace not in broker.namespaces:
            if not broker.settings.names.auto_create_namespaces_enable:
                raise NamespaceNotFound(f"namespace {namespace} does not exist")
            await broker.namespaces.create(namespace)

    async def grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions to a topic; raise ``InvalidPartitions``."""
        if topic.name not in self._partitioned:
            raise InvalidPartitions(f"{topic.name} is not partitioned")
        if partitions < topic.partitions:
            raise InvalidPartitions(
                f"{topic.name} has {topic.partitions} partitions; {partitions} would not be an increase."
            )
        refuse_too_many(partitions - topic.partitions)
        await self._keep(topic.name, partitions, topic.stored_version)

    async def delete(self, topic: Topic) -> None:
        """Forget a topic; its clients are sent away."""
        self._send_away(topic)
        await self._policies.forget(topic.name)

        def plan() -> list[Delete]:
            known = self._partitioned.get(topic.name)
            return [] if known is None else [Delete(topic_path(topic.name), known.stored_version)]

        await self._broker.metadata.change(plan)

    def _send_away(self, topic: Topic) -> None:
        for each in self.open_of(topic):
            del self._open[topic.name, each.index]
            each.send_away()

    def changed(self, topic: Topic) -> None:
        """The policies of a topic have changed."""
        for each in self.open_of(topic):
            each.apply(self._policies.limits(topic))

    def _namespaces_changed(self) -> None:
        for each in self.all_open():
            each.apply(self._policies.limits(each.topic))

    async def let_go(self, bundle: Bundle) -> None:
        """Send away the clients of what has gone to another broker: nothing is kept that could go with it."""
        for key, topic in list(self._open.items()):
            if self._broker.cluster.ownership.bundle_of(topic.topic.name, topic.index) == bundle:
                del self._open[key]
                topic.send_away()

    async def sweep(self) -> None:
        """Forget what nobody has used for a while."""
        async for key in sliced(self._open):
            topic = self._open.get(key)
            if topic is not None and topic.is_idle():
                del self._open[key]

    def close(self) -> None:
        """Send everybody away."""
        for topic in self.all_open():
            topic.send_away()

    async def _keep(self, name: TopicName, partitions: int, expected: int) -> None:
        content = json.dumps({"partitions": partitions, "deleted": False}, separators=(",", ":"))
        await self._broker.metadata.commit([Put(topic_path(name), content.encode(), expected)])


def _partitioned(name: TopicName, partitions: int) -> Topic:
    return Topic(name, "", b"", partitions, made_partitioned=True)


def _decode(path: str, value: bytes) -> int:
    try:
        partitions = int(json.loads(value)["partitions"])
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"not a topic: {error!r}") from error
    return max(partitions, 1)
