"""What brokers of a cluster, or workers of one data directory, ask each other beyond what Kafka has words for.

Kafka's handler carries it, over the listeners by which brokers ask each other anything; whoever asks, and whoever
answers, knows only this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class BetweenBrokers:
    """One broker's."""

    ask: Callable[[int, str, bytes], Awaitable[bytes]] | None = None
    """Returns the answer of the broker of that number to what it is asked about something; raises ``BrokerError``. None
    where Kafka's handler does not run."""
    answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = field(default_factory=dict)
    """What is answered to other brokers, by what it is about."""
