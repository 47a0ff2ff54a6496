"""Who gets the pieces of a large message: all of them one consumer, which puts them together (PIP-37).

A consumer throws a piece away whose predecessor it has not got. So the pieces of a message go where its first one
went; while that consumer has no room they wait, and whole messages, and those of other consumers, pass them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.wire.pulsar.pulsar_pb2 import MessageMetadata

_MOST_MESSAGES = 10_000
"""That are known to be on their way in pieces: of many a producer dies before it has sent the last one."""


class Replay(NamedTuple):
    """An entry to be sent again."""

    last_offset: int
    hashes: tuple[int, ...]


class MessagePieces:
    """Of one subscription."""

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        """By the message's uuid: who has got what has been sent of it."""
        self._waiting: dict[Consumer, dict[Place, Replay]] = {}

    def clear(self) -> None:
        """Forget what was sent: all is sent anew."""
        self._consumers.clear()
        self._waiting.clear()

    def consumer(self, metadata: MessageMetadata) -> Consumer | None:
        """Return who has got the pieces before this one, None if it is none, or the first."""
        return self._consumers.get(metadata.uuid) if metadata.num_chunks_from_msg > 1 else None

    def sent(self, metadata: MessageMetadata, consumer: Consumer) -> None:
        """Note who gets a piece."""
        if metadata.chunk_id == metadata.num_chunks_from_msg - 1:
            self._consumers.pop(metadata.uuid, None)
            return
        self._consumers[metadata.uuid] = consumer
        if len(self._consumers) > _MOST_MESSAGES:
            del self._consumers[next(iter(self._consumers))]

    def wait(self, place: Place, replay: Replay, consumer: Consumer) -> None:
        """Have a piece wait for its consumer."""
        self._waiting.setdefault(consumer, {})[place] = replay

    def forget(self, place: Place) -> None:
        """An entry need not be sent any more."""
        for pieces in self._waiting.values():
            pieces.pop(place, None)

    def forget_up_to(self, position: Position) -> None:
        """Nor any entry up to there."""
        for pieces in self._waiting.values():
            for place in [each for each in pieces if each <= position]:
                del pieces[place]

    def due(self, waits: Callable[[Consumer], bool]) -> Iterator[tuple[Place, Replay]]:
        """Take the pieces whose consumer need not be waited for any more: it has room, or has gone."""
        for consumer in [each for each in self._waiting if not waits(each)]:
            yield from self._waiting.pop(consumer).items()
