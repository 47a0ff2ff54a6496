"""What Pulsar's handler does for transactions where they are switched on: the coordinator, and who takes part."""

from __future__ import annotations

from magnetar.coordination.transactions import Coordinator, TxnPartition
from magnetar.node.broker import Broker
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.transactions.coordinator_elsewhere import CoordinatorElsewhere
from magnetar.pulsar.transactions.participants import TopicParticipants
from magnetar.topics.names import TRANSACTION_STATE


class TransactionService:
    """One broker's."""

    def __init__(
        self, broker: Broker, topics: PulsarTopics, participants: TopicParticipants, coordinator: Coordinator
    ) -> None:
        self.broker = broker
        self.coordinator = coordinator
        self.participants = participants
        self.anywhere = CoordinatorElsewhere(coordinator, participants.exchange, broker.cluster.ownership)
        topics.loading.append(self._restore)

    async def _restore(self, topic: PulsarTopic) -> None:
        await self.participants.restore(topic, self.coordinator)

    def partition_of(self, name: PulsarName) -> TxnPartition:
        """Return the partition that a client names, whether there is such a topic or not."""
        return TxnPartition(self.broker.naming.kafka_name(name.topic), name.partition or 0)

    def kept_in(self, name: PulsarName) -> PulsarName:
        """Return where the coordinator is kept that a client looks up, by a partition of ``COORDINATOR_ASSIGN``.

        Raises `CoordinatorNotFound` for one that there is not.
        """
        coordinator = name.partition or 0
        self.coordinator.owner(coordinator)
        return PulsarName(self.broker.naming.parse(TRANSACTION_STATE), coordinator)

    def name_of(self, where: TxnPartition) -> str:
        """Return what Pulsar's clients call a partition."""
        topic = self.broker.get(where.topic)
        name = self.broker.naming.parse(where.topic)
        is_partitioned = topic.partitioned if topic is not None else where.partition > 0
        return str(PulsarName(name, where.partition if is_partitioned else None))
