"""The façade of this room: its objects in one broker."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.cluster.ownership import Ownership
from magnetar.cluster.peers import Peers


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The other brokers, and which topics this one serves."""

    ownership: Ownership
    between: BetweenBrokers
    peers: Peers | None
    """The other processes that serve the same data directory; None if there are none."""
    questions: int | None
    """The descriptor of the operators' socket, if several processes share it; otherwise it must be created."""
