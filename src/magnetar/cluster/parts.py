"""The façade of this room: its objects in one broker."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.cluster.ownership import Ownership
from magnetar.cluster.peers import Peers


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The other brokers, and what this one serves of all there is."""

    ownership: Ownership
    between: BetweenBrokers
    peers: Peers | None
    """The other processes that serve the same data directory; None if it has that alone."""
    questions: int | None
    """The descriptor of the socket where operators ask, if several processes share it; it is to be made if not."""
