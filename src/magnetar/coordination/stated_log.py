"""One partition of a coordinator's log as facts: appended, replayed, and compacted by a snapshot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.coordination.batches import encode_stated, stated_in
from magnetar.coordination.decision import Decider, Stated
from magnetar.coordination.log import OffsetsLog
from magnetar.records.batch import batches

SNAPSHOT_AFTER: Final = 2_000
"""A log of fewer records is not compacted: its replay takes no time (75,000 records a second were measured)."""
SNAPSHOT_BATCH: Final = 150
"""Facts per batch of a snapshot."""
SNAPSHOT_FACTOR: Final = 4
"""How many times more records than live keys a log may have."""

_log = logging.getLogger(__name__)


class StatedLog:
    """It counts its records, and compacts the log once it has too many."""

    def __init__(self, partition: int, log: OffsetsLog, clock: Callable[[], int], about: str) -> None:
        self.records = 0
        """How many records it has, as far as this process knows."""
        self._partition = partition
        self._log = log
        self._clock = clock
        self._about = about
        self._next_offset = 0
        self._compact_at = 0

    def begin_empty(self) -> None:
        """Note that nothing was ever written."""
        self.records = self._next_offset = self._compact_at = 0

    async def append(self, facts: Sequence[Stated]) -> None:
        """Append facts, durable on return. Whatever is raised, it is unknown then if they were stored."""
        for number, (batch, count) in enumerate(encode_stated(facts, self._clock())):
            if number:
                await asyncio.sleep(0)  # an append need not wait for anything
            base_offset = await self._log.append(self._partition, batch, count)
            self._next_offset = base_offset + count
            self.records += count

    async def compact(self, decider: Decider | None) -> None:
        """Append a snapshot of all live keys to a log that has grown too long, then drop what lies before.

        Facts decided meanwhile are appended after it, so whatever the mixture here, they have the last word.
        """
        if decider is None or decider.foreign or self.records <= self._compact_at:
            return
        self._compact_at = max(SNAPSHOT_AFTER, SNAPSHOT_FACTOR * decider.live_facts())
        if self.records <= self._compact_at:
            return
        before, self.records = self.records, 0
        start = self._next_offset
        facts: list[Stated] = []
        for some in decider.snapshot():
            facts += some
            while len(facts) >= SNAPSHOT_BATCH:
                await self.append(facts[:SNAPSHOT_BATCH])
                await asyncio.sleep(0)
                facts = facts[SNAPSHOT_BATCH:]
        await self.append(facts)
        await self._log.trim(self._partition, start)
        _log.info(
            "partition %d of %s: %d facts became %d", self._partition, self._about, before, self.records
        )

    async def replay_into(self, decider: Decider) -> None:
        """Replay all that is written into a decider."""
        self.records = 0
        async for data in self._log.replay(self._partition):
            for header, batch in batches(data):
                for stated in stated_in(header, batch):
                    decider.replay(stated)
                self.records += header.records_count
            await asyncio.sleep(0)
