"""What the handlers of commands ask of a subscription, whether its topic keeps messages or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.wire.pulsar_pb2 import CommandSubscribe


class AnySubscription(Protocol):
    """One subscription of one partition."""

    name: str
    sub_type: CommandSubscribe.SubType
    consumers: list[Consumer]
    properties: dict[str, str]
    expired: int

    @property
    def is_durable(self) -> bool:
        """Whether it outlives its last consumer."""
        ...

    def check(self, consumer: Consumer) -> None:
        """Raise why a consumer may not come in, if so."""

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; raise ``ConsumerBusy`` and the like."""

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go."""

    def disconnect(self) -> None:
        """Send all consumers away; they come back by themselves."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """A consumer has room for more messages."""

    def kick(self) -> None:
        """Send on, if something can be sent."""

    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        """One entry is done with or, of a batch, all but ``remaining``."""

    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        """Everything up to an entry is done with, of that one's batch all but ``remaining``."""

    def flush_acks(self) -> None:
        """Have the cursor, if there is one, know of all acknowledgements."""

    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        """Send entries again."""

    def check_unsubscribe(self) -> None:
        """Raise ``PulsarError`` unless the only consumer left may end the subscription."""

    def close(self) -> None:
        """Keep what is acknowledged, and stop."""

    @property
    def backlog(self) -> int:
        """How many entries are not acknowledged."""
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether too much is unacknowledged to send more."""
        ...

    @property
    def unacked(self) -> int:
        """How many messages its consumers hold."""
        ...

    @property
    def delivered_messages(self) -> int:
        """How many messages were sent."""
        ...

    @property
    def delivered_bytes(self) -> int:
        """How many bytes were sent."""
        ...
