"""One consumer of a subscription: how much it may still get, and what it has not acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from magnetar.ledger.formats.ack_sets import words_of
from magnetar.pulsar.dispatch.deliveries import Delivery, Place
from magnetar.records.compression import Buffer
from magnetar.wire.pulsar import encode


class ConsumerSink(Protocol):
    """The connection that a consumer lives on."""

    @property
    def is_writable(self) -> bool:
        """Whether the client takes what it is sent."""
        ...

    @property
    def address(self) -> str: ...

    @property
    def client_version(self) -> str: ...

    def deliver(self, parts: Sequence[Buffer]) -> None:
        """Send whole frames, given in parts."""
        ...

    def consumer_closed(self, consumer_id: int) -> None:
        """Tell the client that its consumer is gone; it will come back by itself."""
        ...

    def reached_end(self, consumer_id: int) -> None:
        """Tell the client that its consumer has had the last message that there will ever be."""
        ...

    def active_changed(self, consumer_id: int, is_active: bool) -> None:
        """Tell the client whether it is the one of a failover subscription that gets messages."""
        ...


class PendingAck(NamedTuple):
    """An entry that a consumer has and did not acknowledge."""

    messages: int
    """How many of its messages are not acknowledged."""
    last_offset: int
    hashes: tuple[int, ...]
    """Where its keys lie, on a Key_Shared subscription."""
    size: int
    """How many messages it has."""

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.size + 1


@dataclass(slots=True, eq=False, weakref_slot=True)
class Consumer:
    """One consumer. ``permits`` counts messages that it has room for; it may fall below 0 by part of a batch."""

    sink: ConsumerSink
    consumer_id: int
    name: str
    partition: int
    priority_level: int = 0
    hash_ranges: tuple[tuple[int, int], ...] = ()
    """For sticky Key_Shared, inclusive."""
    out_of_order: bool = False
    epoch: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    connected_ms: int = 0
    role: str = ""
    read_compacted: bool = False
    """Whether it wants the newest message of every key, as far as the topic is compacted."""
    permits: int = 0
    flowed_ms: int = 0
    """When it last said that it had room."""
    unacked: int = 0
    pending: dict[Place, PendingAck] = field(default_factory=dict)
    delivered_messages: int = 0
    delivered_bytes: int = 0
    redelivered: int = 0
    """How many messages it was sent again."""
    knows_end: bool = False
    """Whether it was told that nothing more will come."""
    acknowledged: int = 0
    """How many messages it acknowledged, as Pulsar counts: everything up to one is one."""

    @property
    def has_room(self) -> bool:
        return self.permits > 0 and self.sink.is_writable

    def send(self, deliveries: Iterable[tuple[Delivery, int, int | None]]) -> None:
        """Send entries, each with how often it was delivered before and which of its messages remain (None: all)."""
        parts: list[Buffer] = []
        for delivery, redeliveries, remaining in deliveries:
            body = delivery.body
            ack_set = () if remaining is None else words_of(remaining)
            parts.append(
                encode.message_head(
                    self.consumer_id,
                    delivery.place,
                    self.partition,
                    len(body),
                    redeliveries,
                    ack_set,
                    self.epoch,
                )
            )
            parts.append(body)
            self.delivered_messages += delivery.messages
            self.delivered_bytes += len(body)
            if redeliveries:
                self.redelivered += delivery.messages
        if parts:
            self.sink.deliver(parts)
