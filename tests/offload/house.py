"""An engine of files with tiered storage, on a directory that outlives it."""

from __future__ import annotations

import random
from pathlib import Path

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.ledger.tiers.tiers import Tiers, TierSettings
from magnetar.metadata import SqliteStore
from tests.ledger.entries import NOW_MS, append

NAME = "public/default/persistent/t"
SMALL = TierSettings(block_bytes=8 << 10, cache_bytes=64 << 10)


class TieredHouse:
    def __init__(self, root: Path, settings: TierSettings = SMALL) -> None:
        self.root = root
        self.settings = settings
        self.now_ms = NOW_MS

    async def begin(self) -> None:
        self.metadata = SqliteStore(self.root / "metadata.sqlite")
        self.engine = FilesEngine(
            self.root,
            self.metadata,
            RealDisk(),
            clock=lambda: self.now_ms,
            make_tiers=lambda: Tiers(self.settings),
        )
        await self.engine.start()

    async def end(self) -> None:
        await self.engine.close()
        self.metadata.blocking.close()

    async def reopen(self) -> None:
        await self.end()
        await self.begin()

    async def log(self, **policy: object) -> ManagedLedger:
        policy = {"max_ledger_entries": 200, "retention_ms": -1, **policy}
        return await self.engine.open(NAME, LedgerPolicy(**policy))  # type: ignore[arg-type]

    def files(self) -> int:
        return len(list(self.root.glob("ledgers/*/*")))


async def filled(log: ManagedLedger, entries: int, *, seed: int = 1) -> None:
    """Append entries of all sizes, one to three messages each, in order of time; then seal them."""
    rng = random.Random(seed)
    due = []
    for number in range(entries):
        size = rng.choice((10, 100, 1000, 1000, 3000, 20_000 if number % 50 == 7 else 10))
        values = [rng.randbytes(size) for _ in range(rng.randint(1, 3))]
        due.append(append(log, *values, timestamp_ms=NOW_MS + 10 * number))
    for each in due:
        await each.settled()
    await log.roll()


def sealed(log: ManagedLedger) -> list[int]:
    return [each.ledger_id for each in log.ledgers() if each.sealed and each.entries and not each.compacted]
