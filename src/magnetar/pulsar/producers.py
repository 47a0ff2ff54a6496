"""Producers of one topic: who may produce, and in what order those wait who want the topic to themselves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from magnetar.pulsar.errors import ProducerBusy, ProducerFenced, PulsarError
from magnetar.wire.pulsar.pulsar_pb2 import ProducerAccessMode, ServerError


class ProducerSink(Protocol):
    """The connection that a producer lives on."""

    @property
    def address(self) -> str: ...

    @property
    def client_version(self) -> str: ...

    def producer_closed(self, producer_id: int) -> None:
        """Tell the client that its producer is gone; it will come back by itself."""
        ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class Producer:
    """One producer. ``epoch`` grows each time its client connects it again."""

    sink: ProducerSink
    producer_id: int
    name: str
    epoch: int = 0
    name_given: bool = False
    """Whether the client chose the name."""
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    topic_epoch: int | None = None
    schema_version: bytes = b""
    metadata: dict[str, str] = field(default_factory=dict)
    role: str = ""
    connected_ms: int = 0
    messages: int = 0
    bytes: int = 0

    @property
    def is_exclusive(self) -> bool:
        return self.access_mode != ProducerAccessMode.Shared


class Producers:
    """The producers of one topic (of one partition)."""

    def __init__(self, emptied: Callable[[], None] | None = None) -> None:
        """``emptied`` is called when the last producer has gone."""
        self.by_name: dict[str, Producer] = {}
        self.epoch: int | None = None
        """Of the last one that had the topic for itself. Whoever lets a producer begin keeps its epoch before."""
        self._owner: Producer | None = None
        self._waiting: deque[tuple[Producer, asyncio.Future[None]]] = deque()
        self._emptied = emptied

    @property
    def waiting(self) -> int:
        """How many producers wait to have the topic to themselves."""
        return len(self._waiting)

    def add(self, producer: Producer) -> asyncio.Future[None] | None:
        """Let a producer in, or give when it will be; raise ``ProducerBusy`` or ``ProducerFenced``."""
        self._replace(producer)
        mode = producer.access_mode
        if mode == ProducerAccessMode.Shared:
            if self._owner is not None or self._waiting:
                raise ProducerBusy("Topic has an existing exclusive producer: " + self._owners_name())
        elif mode == ProducerAccessMode.Exclusive:
            if self.by_name or self._waiting:
                raise ProducerFenced("Topic has an existing producer, and this one wants it for itself")
            self._own(producer)
        elif mode == ProducerAccessMode.ExclusiveWithFencing:
            self.send_away(wake=False, fence=True)
            self._own(producer)
        elif self.by_name:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((producer, turn))
            return turn
        else:
            self._own(producer)
        self.by_name[producer.name] = producer
        return None

    def _replace(self, producer: Producer) -> None:
        """A client that lost its connection comes back before the broker noticed: the newer epoch wins."""
        old = self.by_name.get(producer.name)
        if old is None:
            return
        same_client = old.sink is producer.sink and old.producer_id == producer.producer_id
        if not same_client and (producer.name_given or producer.epoch <= old.epoch):
            raise ProducerBusy(f"Producer with name '{producer.name}' is already connected to topic")
        if same_client and producer.epoch < old.epoch:
            raise ProducerBusy(f"Producer with name '{producer.name}' is already connected to topic")
        self.remove(old, wake=False)
        old.sink.producer_closed(old.producer_id)

    def _owners_name(self) -> str:
        return self._owner.name if self._owner is not None else "one that waits for it"

    def _own(self, producer: Producer) -> None:
        """Give a producer the topic for itself, under an epoch that fences all before it off."""
        if producer.topic_epoch is not None and self.epoch is not None and producer.topic_epoch < self.epoch:
            raise ProducerFenced(
                f"Producer was fenced: it had the topic in epoch {producer.topic_epoch}, which is {self.epoch} now"
            )
        if producer.topic_epoch is None or self.epoch is None or producer.topic_epoch > self.epoch:
            self.epoch = 0 if self.epoch is None else self.epoch + 1
        producer.topic_epoch = self.epoch
        self._owner = producer

    def send_away(self, *, wake: bool = True, fence: bool = False) -> None:
        """Close all producers; their clients come back by themselves, unless who waits is to be fenced off.

        Without ``wake`` who waits for the topic is not given it, but told to come again.
        """
        if not wake:
            waiting, self._waiting = self._waiting, deque()
            for _, turn in waiting:
                if not turn.done():
                    turn.set_exception(
                        ProducerFenced("Fenced out")
                        if fence
                        else PulsarError("Topic was closed", ServerError.ServiceNotReady)
                    )
        for producer in list(self.by_name.values()):
            self.remove(producer, wake=wake)
            producer.sink.producer_closed(producer.producer_id)

    def remove(self, producer: Producer, *, wake: bool = True) -> None:
        """Let a producer go; who waits longest for the topic may get it."""
        if self.by_name.get(producer.name) is producer:
            del self.by_name[producer.name]
        self._waiting = deque(each for each in self._waiting if each[0] is not producer)
        if self._owner is producer:
            self._owner = None
        while wake and self._waiting and not self.by_name:
            following, turn = self._waiting.popleft()
            if turn.done():
                continue
            try:
                self._own(following)
            except ProducerFenced as error:
                turn.set_exception(error)
                continue
            self.by_name[following.name] = following
            turn.set_result(None)
        if not self.by_name and self._emptied is not None:
            self._emptied()
