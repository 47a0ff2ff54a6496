"""Partitions that a client is about to write to or to read are opened side by side, where to open one takes long.

A connection's requests are carried out one after another, so that its records keep their order, and a log on bookies
takes a dozen round trips to be opened. A client that begins to write to thousands of topics, or comes to the new owner
of a dead broker's, sends a request for each at once: while the first waits for its log, those of the others that have
come are opened, too. What cannot be opened is told to whoever asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.auth import Access, Right, may
from magnetar.base.errors import BrokerError
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.node.broker import Broker

OPENED_AT_ONCE = 32
"""More only wait for ZooKeeper, for the bookies and for the processor."""
WANTED_AT_MOST = 1024
"""Of all connections together; what is named beyond that is opened when its turn comes."""

WANTED_OF_A_REQUEST = 64


class OpensPartitions(Protocol):
    """The registry of partitions; see `magnetar.kafka.partitions.registry.Partitions`."""

    def opened(self, topic: str, topic_id: bytes, index: int) -> Any: ...

    async def get(self, topic: Topic, index: int) -> Any: ...


class OpeningAhead:
    """What is being opened before its request is carried out."""

    def __init__(self, broker: Broker, partitions: OpensPartitions) -> None:
        self._broker = broker
        self._partitions = partitions
        self._places = asyncio.Semaphore(OPENED_AT_ONCE)
        self._wanted: dict[tuple[bytes, int], asyncio.Task[None]] = {}

    def want(
        self, name: str, topic_id: bytes, index: int, access: Access | None, right: Right = Right.produce
    ) -> bool:
        """Have a partition be opened soon if the client has a right to it; return False where too many are wanted."""
        if len(self._wanted) >= WANTED_AT_MOST:
            return False
        if self._partitions.opened(name, topic_id, index) is not None:
            return True
        topic = self._found(name, topic_id)
        if topic is None or not self._broker.visible(topic) or not may(access, right, topic.name):
            return True
        key = topic.topic_id, index
        if key not in self._wanted:
            task = self._wanted[key] = asyncio.ensure_future(self._open(topic, index))
            task.add_done_callback(lambda _: self._wanted.pop(key, None))
        return True

    def want_all(
        self, rows: Iterable[tuple[str, bytes, int]], access: Access | None, right: Right = Right.produce
    ) -> None:
        """Do so for rows of a request: a topic's name, its id, and a partition each; the first of them only."""
        for row in islice(rows, WANTED_OF_A_REQUEST):
            if not self.want(*row, access, right):
                return

    def _found(self, name: str, topic_id: bytes) -> Topic | None:
        try:
            return self._broker.get(name) if name else self._broker.get_by_id(topic_id)
        except BrokerError:  # it can be no topic's name
            return None

    async def _open(self, topic: Topic, index: int) -> None:
        with suppress(BrokerError, LedgerError, MetadataError):
            async with self._places:
                await self._partitions.get(topic, index)

    async def close(self) -> None:
        """Give up what waits for its turn."""
        tasks = list(self._wanted.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
