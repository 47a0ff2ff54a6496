"""What one broker offers to Kafka's clients, and to those of each tenant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.kafka.client_metrics.lazy import LazyClientMetrics
from magnetar.kafka.clients import Clients
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.producer_ids import ProducerIds
from magnetar.kafka.quotas.lazy import LazyQuotas
from magnetar.kafka.request_figures import Requests
from magnetar.ledger.durations import Durations
from magnetar.node.broker import Broker
from magnetar.serving.fetch_sessions import FetchSessions
from magnetar.serving.pace import SharedTurn
from magnetar.serving.wakeups import Wakeups

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.groups import GroupCoordinator
    from magnetar.kafka.shares.lazy import LazyShares
    from magnetar.kafka.transactions.lazy import LazyTransactions


@dataclass(slots=True)
class KafkaServices:
    """What one broker offers to Kafka's clients."""

    broker: Broker
    partitions: Partitions
    groups: GroupCoordinator
    transactions: LazyTransactions
    shares: LazyShares
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    wakeups: Wakeups
    quotas: LazyQuotas
    client_metrics: LazyClientMetrics
    requests: Requests = field(default_factory=Requests)
    """What is counted of requests, by the key of the API."""
    clients: Clients = field(default_factory=Clients)
    reads: Durations | None = None
    """How long reads of consumers took, where a dialect asks for that."""
    turn: SharedTurn = field(default_factory=SharedTurn)
    home: str = ""
    """The namespace of short topic names and of groups, where it is not the broker's."""
    by_tenant: bool = False
    """Whether clients' names decide about that (`magnetar.kafka.tenancy`)."""
