"""The topics that share groups' dead letters go to: which they are, whether they may be, how a batch gets there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from magnetar.auth import Right, may
from magnetar.base.errors import BrokerError
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.partitions.partition import PreparedBatch
from magnetar.kafka.partitions.registry import Partitions
from magnetar.node.broker import Broker
from magnetar.topics.names import TopicName
from magnetar.topics.new_topic import NewTopic
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode

GROUP_ENABLE = "errors.deadletterqueue.group.enable"
_LARGE_AT_ONCE = 4
_TIMEOUT_MS = 10_000
_ALL_REPLICAS = -1


class NoDeadLetterQueue(Exception):
    """A share group's dead-letter queue is not there, or may not be one."""


@dataclass(slots=True)
class LetterCounts:
    """What became of one group's letters since this start."""

    records: int = 0
    """Letters that are in the queue."""
    produces: int = 0
    """Batches of them that were to be written, each try counted."""
    failed: int = 0
    """Tries that came to nothing."""


class DeadLetterTopics:
    """The topics of one broker's share groups, or of one tenant's."""

    def __init__(
        self,
        broker: Broker,
        partitions: Partitions,
        others: OtherBrokers,
        named_by: Callable[[str], str],
        home: str = "",
    ) -> None:
        """``named_by`` gives the role that named a group's queue; short names lie at ``home``, a tenant's namespace."""
        self.background = broker.background
        self.large = asyncio.Semaphore(_LARGE_AT_ONCE)
        """To be had by whoever has a large batch unpacked."""
        self.counts: dict[str, LetterCounts] = {}
        """By group, of those that have given something up."""
        self._broker = broker
        self._partitions = partitions
        self._others = others
        self._named_by = named_by
        self._home = home

    async def find(self, group_id: str, settings: ShareSettings, source: Topic) -> Topic:
        """Return the queue for what a group gives up of a topic, made if that is allowed.

        Raises `NoDeadLetterQueue`, ``BrokerError``, ``MetadataError``.
        """
        broker, named = self._broker, settings.errors_deadletterqueue_topic_name
        if not named:
            raise NoDeadLetterQueue("the group has no dead-letter queue any more")
        full = f"{self._home}/{named}" if self._home and "/" not in named else named
        name = broker.naming.parse(full)
        self._check_name(name, settings, source)
        self._check_rights(group_id, name, source)
        topic = broker.get(full)
        if topic is None:
            return await self._make(name, settings)
        if not topic.config.errors_deadletterqueue_group_enable:
            raise NoDeadLetterQueue(f"topic {named} has not {GROUP_ENABLE}=true")
        if topic.internal or not broker.visible(topic):
            raise NoDeadLetterQueue(f"topic {named} is not for clients")
        if topic.config.is_migrating:
            raise NoDeadLetterQueue(f"another cluster leads topic {named}")
        if topic.name.namespace_name in broker.namespaces.encrypted:
            raise NoDeadLetterQueue(f"topic {named} takes encrypted messages only")
        return topic

    def _check_name(self, name: TopicName, settings: ShareSettings, source: Topic) -> None:
        prefix = settings.errors_deadletterqueue_topic_name_prefix
        if name.local.startswith("__"):
            raise NoDeadLetterQueue(f"the name of topic {name} starts with __")
        if not name.local.startswith(prefix):
            raise NoDeadLetterQueue(f"the name of topic {name} does not start with {prefix}")
        # Or who may configure a group of one tenant's could write to another one's.
        if name.tenant != source.name.tenant:
            raise NoDeadLetterQueue(f"topic {name} is another tenant's than {source.name}")

    def _check_rights(self, group_id: str, name: TopicName, source: Topic) -> None:
        """Have nothing in the queue that whoever named it could not have copied there."""
        role = self._named_by(group_id)
        access = self._broker.security.authorization.access(role) if role else None
        if not may(access, Right.consume, source.name):
            raise NoDeadLetterQueue(f"{role}, who named topic {name} for it, may not consume {source.name}")
        if not may(access, Right.produce, name):
            raise NoDeadLetterQueue(f"{role}, who named topic {name} for it, may not produce there")

    async def _make(self, name: TopicName, settings: ShareSettings) -> Topic:
        if not settings.errors_deadletterqueue_auto_create_topics_enable or not self._broker.allows(name):
            raise NoDeadLetterQueue(f"there is no topic {name}, and none is made")
        configs = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
        (made,) = await self._broker.create_topics([NewTopic(name, None, configs)])
        if isinstance(made, BrokerError):
            raise made  # where it is there by now, the next try finds it
        return made

    async def append(self, topic: Topic, index: int, batch: bytes) -> None:
        """Write a batch, durable on return.

        Raises ``BrokerError``, ``LedgerError``, ``RecordsError``, `CoordinatorRefused`.
        """
        ownership = self._broker.cluster.ownership
        owner = ownership.owner(topic.name, index)
        if owner is not None and owner.node_id != ownership.node_id:
            await self._ask(owner.node_id, topic, index, batch)
            return
        partition = await self._partitions.get(topic, index)
        draft = partition.check(memoryview(batch))
        if not isinstance(draft, PreparedBatch):
            draft = await draft
        done = partition.produce(draft).done
        if done is not None:
            await done

    async def _ask(self, node_id: int, topic: Topic, index: int, batch: bytes) -> None:
        from magnetar.wire.kafka.messages import produce_request as wire

        rows = [wire.PartitionProduceData(index=index, records=batch)]
        request = wire.ProduceRequest(
            acks=_ALL_REPLICAS,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[wire.TopicProduceData(topic_id=topic.topic_id, partition_data=rows)],
        )
        answer = await self._others.ask(node_id, request)
        row = answer.responses[0].partition_responses[0]
        code = ErrorCode(row.error_code)
        if code is not ErrorCode.NONE:
            raise CoordinatorRefused(code, row.error_message or "")
