"""Which partitions of a coordinator's log this broker has, followed as they come and go."""

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
    """Takes shards up and lets go of them."""

    def __init__(self, log: OffsetsLog, shards: Sequence[Shard[Any]]) -> None:
        self._log = log
        self._shards = shards
        self._gate = asyncio.Semaphore(_LOADS_AT_ONCE)
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Let go of the partitions that another broker has by now, and begin to load those that have come here.

        One that went and came back meanwhile is let go of, too: another broker may have written to it.
        """
        async with self._lock:  # whoever comes second returns only when what the first lets go of is gone
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
        """Return which partitions hold anything, None if nobody can tell: nobody else takes up what came here."""
        try:
            return set(await self._log.written())
        except Exception as error:  # loading one is tried until it can be read, whatever stands in its way
            _log.warning(
                "it cannot be told which partitions of %s hold anything: %s; all are read",
                self._log.topic,
                error,
            )
            return None

    def _epoch(self, shard: Shard[Any]) -> int | None:
        """Return since which epoch this broker has a shard's partition; None if it has it not."""
        owner = self._log.owner(shard.partition) if self._log.is_mine(shard.partition) else None
        return None if owner is None else owner.epoch

    async def loaded(self) -> None:
        """Wait until every partition that this broker has is loaded."""
        await asyncio.gather(*(shard.reloaded() for shard in self._shards))

    @property
    def loading(self) -> int:
        """How many partitions this broker has of which nobody can be told anything yet."""
        return sum(each.is_mine and not each.is_loaded for each in self._shards)

    async def close(self) -> None:
        """Keep what was decided, then send away whoever waits."""
        await asyncio.gather(*(shard.close() for shard in self._shards))
