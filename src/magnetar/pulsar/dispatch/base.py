"""What every subscription is, whether its topic keeps messages or not: consumers that come and go, and who goes first.

It is also what the handlers of commands ask of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.errors import ConsumerBusy, PulsarError
from magnetar.wire.pulsar.pulsar_pb2 import CommandSubscribe, ServerError

SubType = CommandSubscribe.SubType


class AnySubscription(ABC):
    """One subscription of one partition. Everything runs on the event loop."""

    sub_type: SubType

    def __init__(self, name: str) -> None:
        self.name = name
        self.consumers: list[Consumer] = []
        self.properties: dict[str, str] = {}
        self.expired = 0
        """How many entries it passed over because they were too old."""
        self.begun_anew = 0
        """How often it was set to another place: what was said of messages before that counts no more."""
        self._left_messages = self._left_bytes = self._left_redelivered = self._left_acknowledged = 0

    @property
    @abstractmethod
    def is_durable(self) -> bool:
        """Whether it outlives its last consumer."""

    # -- consumers

    def check(self, consumer: Consumer) -> None:
        """Raise why a consumer may not come in, if so: ``ConsumerBusy`` and the like."""
        if self.sub_type == SubType.Exclusive and self.consumers:
            raise ConsumerBusy("Exclusive consumer is already connected")

    def add(self, consumer: Consumer) -> None:
        """Let a consumer in; raise what `check` raises."""
        self.check(consumer)
        self.consumers.append(consumer)
        self._added(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer go; what it had not acknowledged goes to others."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._left_messages += consumer.delivered_messages
            self._left_bytes += consumer.delivered_bytes
            self._left_redelivered += consumer.redelivered
            self._left_acknowledged += consumer.acknowledged
            self._removed(consumer)

    @abstractmethod
    def _added(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _removed(self, consumer: Consumer) -> None: ...

    def disconnect(self) -> None:
        """Send all consumers away; they come back by themselves."""
        for consumer in self.consumers[:]:
            self.remove(consumer)
            consumer.sink.consumer_closed(consumer.consumer_id)

    def flow(self, consumer: Consumer, permits: int) -> None:
        """A consumer has room for more messages."""
        consumer.permits += permits
        self.wake()

    def check_unsubscribe(self) -> None:
        """Raise ``PulsarError`` unless the only consumer left may end the subscription."""
        if len(self.consumers) > 1:
            raise PulsarError(
                "Unconnected or shared consumer attempting to unsubscribe", ServerError.MetadataError
            )

    # -- messages

    def batch_size(self, place: Place) -> int | None:
        """Return how many messages an entry has that may be acknowledged, None where only storage knows."""
        return 0

    async def stored_batch_size(self, place: Place) -> int:
        """Return the same as storage knows it; raise ``PulsarError`` or ``LedgerError``."""
        return 0

    @abstractmethod
    def wake(self) -> None:
        """Send on, if something can be sent."""

    @abstractmethod
    def acknowledge(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        """One entry is done with or, of a batch, all but ``remaining``; raise ``PulsarError`` for foreign ids."""

    @abstractmethod
    def acknowledge_up_to(self, consumer: Consumer, place: Place, remaining: int | None) -> None:
        """Everything up to an entry is done with, of that one's batch all but ``remaining``."""

    def tell_end(self) -> None:
        """Tell consumers that nothing more will come, if the topic was terminated and they are done with all of it."""
        return

    @abstractmethod
    def flush_acks(self) -> None:
        """Have the cursor, if there is one, know of all acknowledgements."""

    @abstractmethod
    def redeliver(self, consumer: Consumer, places: Sequence[Place], epoch: int | None) -> None:
        """Send entries again: those named, or all that the consumer did not acknowledge."""

    @abstractmethod
    def close(self) -> None:
        """Keep what is acknowledged, and stop."""

    # -- figures

    @property
    def delivered_messages(self) -> int:
        """How many messages were sent, to consumers that left too."""
        return self._left_messages + sum(consumer.delivered_messages for consumer in self.consumers)

    @property
    def delivered_bytes(self) -> int:
        """How many bytes were sent, to consumers that left too."""
        return self._left_bytes + sum(consumer.delivered_bytes for consumer in self.consumers)

    @property
    def redelivered(self) -> int:
        """How many messages were sent again, to consumers that left too."""
        return self._left_redelivered + sum(consumer.redelivered for consumer in self.consumers)

    @property
    def acknowledged(self) -> int:
        """How many messages consumers acknowledged, those that left too."""
        return self._left_acknowledged + sum(consumer.acknowledged for consumer in self.consumers)

    def holds_back(self, consumer: Consumer) -> bool:
        """Whether a consumer gets no more until it acknowledges some of what it has."""
        return False

    @property
    def any_order(self) -> bool:
        """Whether messages of a key may come out of order."""
        return False

    @property
    def backlog(self) -> int:
        """How many entries are not acknowledged."""
        return 0

    @property
    def unacked(self) -> int:
        """How many messages its consumers hold."""
        return sum(consumer.unacked for consumer in self.consumers)

    @property
    def is_blocked(self) -> bool:
        """Whether too much is unacknowledged to send more."""
        return False

    @property
    def active_consumer(self) -> Consumer | None:
        """Who alone gets messages, where one does."""
        return None


def foremost(consumers: Sequence[Consumer]) -> list[Consumer]:
    """Return those of the lowest priority level, which go first."""
    if len(consumers) == 1:
        return [consumers[0]]
    best = min(each.priority_level for each in consumers)
    return [each for each in consumers if each.priority_level == best]


def chosen(consumers: Sequence[Consumer]) -> Consumer | None:
    """Return who alone gets messages: one of the foremost, among whom the partitions are spread."""
    if not consumers:
        return None
    equals = foremost(consumers)
    return equals[max(equals[0].partition, 0) % len(equals)]


def tell_chosen(
    consumers: Sequence[Consumer], newcomer: Consumer | None, old: Consumer | None, active: Consumer | None
) -> None:
    """Tell the consumers of a failover subscription whom it concerns who is the active one."""
    changed = {old, active} if active is not old else set()
    for each in consumers:
        if each in changed or each is newcomer:
            each.sink.active_changed(each.consumer_id, each is active)
