"""Logs that a dead broker was writing are taken over before anybody asks for them, many at a time.

Clients ask one after another: a connection's Produce waits for the one before it until that one's log is open, and to
take a log over is a dozen round trips (its list, its checkpoint, the recovery of its last ledger, the list again). So
whoever is given a dead broker's bundles looks which of their logs were left open, and opens those side by side.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.base.slices import batched, sliced
from magnetar.cluster.ownership import Bundle
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.node.broker import Broker

TAKEN_AT_ONCE = 16
"""Logs that are being opened at the same time. More only wait for ZooKeeper, for the bookies and for the processor."""
_ASKED_ABOUT = 256


class LeftOpen:
    """What has come to this broker and is still to be looked through."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due: set[Bundle] = set()
        self._looks = False

    async def acquired(self, bundle: Bundle) -> None:
        """Have a bundle that has come be looked through, beside everything else."""
        self._due.add(bundle)
        if not self._looks:
            self._looks = True
            self._broker.background.once("taking over logs that were left open", self._look())

    async def _look(self) -> None:
        try:
            while self._due:
                # Bundles of one broker come one by one: one look at all topics is for those that are there by then.
                await asyncio.sleep(0)
                bundles, self._due = self._due, set()
                await self._take(await self._partitions_in(bundles))
        finally:
            self._looks = False

    async def _partitions_in(self, bundles: set[Bundle]) -> dict[str, tuple[Topic, int]]:
        """Return the partitions in these bundles by the names of their logs."""
        namespaces = {each.namespace for each in bundles}
        bundle_of = self._broker.cluster.ownership.bundle_of
        found: dict[str, tuple[Topic, int]] = {}
        async for topic in sliced(self._broker.topics()):
            if topic.name.namespace_name in namespaces:
                for index in range(topic.partitions):
                    if bundle_of(topic.name, index) in bundles:
                        found[topic.name.ledger_name(index)] = topic, index
        return found

    async def _take(self, partitions: dict[str, tuple[Topic, int]]) -> None:
        places = asyncio.Semaphore(TAKEN_AT_ONCE)

        async def opened(topic: Topic, index: int) -> None:
            # What cannot be opened now is told to whoever asks for it.
            async with places:
                with suppress(LedgerError, BrokerError, MetadataError):
                    await self._broker.open_whole(topic, index)

        async with asyncio.TaskGroup() as tasks:
            for some in batched(list(partitions), _ASKED_ABOUT):
                try:
                    names = await self._broker.engine.left_open(some)
                except LedgerError:
                    continue
                for name in names:
                    tasks.create_task(opened(*partitions[name]))
