"""What one broker offers to Pulsar's clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.node.broker import Broker
from magnetar.pulsar.group_cursors import GroupCursors
from magnetar.pulsar.grown_topics import GrownTopics
from magnetar.pulsar.schemas import TopicSchemas
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.watches import Watches
from magnetar.serving.listeners import Listener

if TYPE_CHECKING:
    from magnetar.pulsar.transactions.service import TransactionService


_SINCE_MS = 1_735_689_600_000
"""2025-01-01."""


@dataclass(slots=True)
class PulsarServices:
    """The broker core, and what this protocol adds."""

    broker: Broker
    topics: PulsarTopics
    schemas: TopicSchemas
    groups: GroupCursors
    clock: Callable[[], int]
    watches: Watches
    grown: GrownTopics
    transactions: TransactionService | None = None
    """None where they are switched off."""
    served: Sequence[Listener] = ()
    """Where the binary protocol is served."""
    _names: Iterator[int] = field(default_factory=itertools.count)
    _started: int = 0

    def producer_name(self) -> str:
        """Return a name that no producer has, or had before a restart."""
        # Quarters of a second are as good as ms, for no broker starts twice in one, and each message has the name.
        self._started = self._started or (self.clock() - _SINCE_MS) // 256
        return f"{self.broker.cluster.ownership.cluster}-{self._started:x}-{next(self._names)}"
