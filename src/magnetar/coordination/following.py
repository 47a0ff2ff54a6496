"""Follows which partitions of a coordinator's log this broker owns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from magnetar.coordination.log import OffsetsLog
from magnetar.coordination.shard import Shard

_LOADS_AT_ONCE = 4

_log = logging.getLogger(__name__)


class Following:
    """Begins shards whose partitions come to this broker, and unloads those whose partitions leave it."""

    def __init__(self, log: OffsetsLog, shards: Sequence[Shard[Any]]) -> None:
        self._log = log
        self._shards = shards
        self._gate = asyncio.Semaphore(_LOADS_AT_ONCE)
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Unload the partitions that another broker owns by now, and begin to load those that have come here.

        One that left and came back meanwhile is unloaded, too: another broker may have written to it.
        """
        async with self._lock:  # a second caller returns only when what the first unloads is gone
            gone = [each for each in self._shards if each.is_mine and self._epoch(each) != each.epoch]
            await asyncio.gather(*(each.unload() for each in gone))
            come = [each for each in self._shards if not each.is_mine and self._epoch(each) is not None]
            if come:
                written = await self._written()
                for shard in come:
                    epoch = self._epoch(shard)
                    if epoch is not None:  # it may have gone again meanwhile
                        is_written = written is None or shard.partition in written
                        shard.begin(self._gate, epoch, is_written=is_written)

    async def _written(self) -> set[int] | None:
        """Return the partitions that have records; None if that is unknown: then all that came here are loaded."""
        try:
            return set(await self._log.written())
        except Exception as error:  # loading is tried until the log can be read
            _log.warning(
                "it cannot be told which partitions of %s hold anything: %s; all are read",
                self._log.topic,
                error,
            )
            return None

    def _epoch(self, shard: Shard[Any]) -> int | None:
        """Return the epoch in which this broker got a shard's partition; None if it does not own it."""
        owner = self._log.owner(shard.partition) if self._log.is_mine(shard.partition) else None
        return None if owner is None else owner.epoch

    async def loaded(self) -> None:
        """Wait until every partition that this broker owns is loaded."""
        await asyncio.gather(*(shard.reloaded() for shard in self._shards))

    @property
    def loading(self) -> int:
        """The number of this broker's partitions that cannot answer requests yet."""
        return sum(each.is_mine and not each.is_loaded for each in self._shards)

    async def close(self) -> None:
        """Persist what was decided, then dismiss the clients that wait."""
        await asyncio.gather(*(shard.close() for shard in self._shards))
