"""The coordinators of one broker, put together: those of all its clients or, where there are tenants, of each."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import cached_property
from typing import TYPE_CHECKING

from magnetar.coordination.decision import Marker as LogMarker
from magnetar.coordination.decision import Transaction
from magnetar.kafka.coordinators.groups import GroupCoordinator
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.group_configs import GroupConfigStore
from magnetar.kafka.offsets_log import LedgerOffsetsLog
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.producer_ids import ProducerIds
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.shares.lazy import LazyShares
from magnetar.kafka.topics_of_groups import TopicsOfGroups
from magnetar.kafka.transactions.lazy import LazyTransactions
from magnetar.logs.producers import BUMPS_EPOCHS, EndTransactionMarker
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings
from magnetar.topics.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from magnetar.kafka.shares.shares import Shares
    from magnetar.kafka.transactions.admission import Admission
    from magnetar.kafka.transactions.coordinator import TransactionCoordinator
    from magnetar.kafka.transactions.markers import Markers


class Rooms:
    """Makes coordinators. A transaction may end in groups of any: its markers find them by their topic's name."""

    def __init__(
        self, broker: Broker, partitions: Partitions, settings: Settings, producer_ids: ProducerIds
    ) -> None:
        self.producer_ids = producer_ids
        self.others = OtherBrokers(broker)
        self._broker = broker
        self._partitions = partitions
        self._settings = settings
        self.configs = GroupConfigStore(broker)
        """What is configured for single groups; to be followed before groups are made."""
        self._groups: dict[str, GroupCoordinator] = {}

    def groups(self, topic: str = CONSUMER_OFFSETS) -> GroupCoordinator:
        """Return the groups that are kept in a topic, not started yet."""
        log = LedgerOffsetsLog(self._broker, self._partitions, topic)
        made = GroupCoordinator(
            log,
            self._settings.of(GroupSettings),
            background=self._broker.background,
            topics=TopicsOfGroups(self._broker, topic.partition("/")[0] if "/" in topic else None),
            configs=self.configs.room(log.topic),
        )
        self._groups[made.topic] = made
        return made

    @cached_property
    def markers(self) -> Markers:
        """What ends transactions in partitions."""
        from magnetar.kafka.transactions.markers import Markers

        return Markers(self._broker, self._partitions, self._end_offsets, self.others)

    def transactions(self, topic: str = TRANSACTION_STATE, home: str = "") -> LazyTransactions:
        """Return the transactions that are kept in a topic, made when somebody asks for them.

        Other brokers are asked about those of a tenant as one who is at ``home`` there.
        """

        def make() -> TransactionCoordinator:
            from magnetar.kafka.transactions.coordinator import TransactionCoordinator

            return TransactionCoordinator(
                LedgerOffsetsLog(self._broker, self._partitions, topic),
                self._settings.of(KafkaSettings),
                self.producer_ids.take,
                self.markers,
                self._broker.background,
                pulsars=self._broker.coordination.transactions if topic == TRANSACTION_STATE else None,
            )

        def admit(transactions: TransactionCoordinator) -> Admission:
            from magnetar.kafka.transactions.admission import Admission

            return Admission(
                transactions, self.markers, self.others, self._broker.cluster.ownership.node_id, home
            )

        return LazyTransactions(make, admit, lambda: self._broker.get(topic) is not None)

    def shares(self, groups: GroupCoordinator, topic: str = SHARE_GROUP_STATE, home: str = "") -> LazyShares:
        """Return the share groups of a coordinator whose state is kept in a topic, made when somebody asks for them.

        Other brokers are asked about those of a tenant as one who is at ``home`` there.
        """

        def make() -> Shares:
            from magnetar.kafka.shares.shares import Shares

            return Shares(
                self._broker,
                self._partitions,
                lambda group_id: groups.configs.of(group_id, ShareSettings),
                lambda group_id: groups.configs.named_by(group_id),
                self.others,
                topic,
                home,
            )

        return LazyShares(make, lambda: self._broker.get(topic) is not None)

    def _end_offsets(
        self, topic: str, partition: int, marker: EndTransactionMarker
    ) -> Awaitable[None] | None:
        groups = self._groups.get(topic)
        if groups is None:
            return None
        transaction = Transaction(marker.producer_id, marker.epoch)
        return groups.end_transaction(
            partition,
            LogMarker(
                transaction, marker.committed, marker.coordinator_epoch, marker.version >= BUMPS_EPOCHS
            ),
        )
