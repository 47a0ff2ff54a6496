"""The façade of this room: its objects in one broker."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.coordination.progress import Progress
from magnetar.coordination.shares.linked import LinkedQueues
from magnetar.coordination.transaction_sides import PulsarTransactions


@dataclass(frozen=True, slots=True)
class CoordinationParts:
    """The meeting points of the coordinators of both protocols."""

    progress: Progress
    linked_queues: LinkedQueues
    transactions: PulsarTransactions
