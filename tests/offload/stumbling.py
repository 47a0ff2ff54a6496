"""Offload all full ledgers of a log, and be killed at the N-th step of it; run as a program.

    python -m tests.offload.stumbling DATA PLACE N DIGEST

What is there is read first, and must have the digest given (``-``: print it). A step is what comes before or after a
write of the metadata, an object, or the end of a file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.metadata import SqliteStore
from tests.ledger.entries import NOW_MS, read_all
from tests.offload.house import NAME, SMALL, sealed
from tests.offload.promises import Steps


class Killed(Steps):
    """Kills the process at the fatal one."""

    def step(self) -> None:
        self.taken += 1
        if self.taken == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)


async def digest(log: ManagedLedger) -> str:
    found = hashlib.sha256()
    for entry in await read_all(log):
        found.update(b"%d %d %d " % entry[:3])
        found.update(entry.data)
    return found.hexdigest()


async def main(data: Path, place: TierPlace, fatal: int, due: str) -> int:
    steps, disk = Killed(fatal), RealDisk()
    metadata = SqliteStore(data / "metadata.sqlite")
    tiers = Tiers(SMALL)
    engine = FilesEngine(data, metadata, disk, clock=lambda: NOW_MS, make_tiers=lambda: tiers)
    await engine.start()
    log = await engine.open(NAME, LedgerPolicy(max_ledger_entries=200, retention_ms=-1))
    found = await digest(log)
    if due == "-":
        print(found)
    assert due in ("-", found), "what is read is not what was written"
    store = tiers.store(place)
    for name in ("put", "size", "delete"):
        setattr(store, name, steps.around(getattr(store, name)))
    metadata.commit = steps.around_async(metadata.commit)  # type: ignore[method-assign]
    disk.remove = steps.around(disk.remove)  # type: ignore[method-assign]
    for ledger_id in sealed(log):
        await log.offload(ledger_id, place)
    await log.delete_local(sealed(log))
    await engine.shared.work.ended()
    await engine.delete_doomed()
    assert await digest(log) == found
    await engine.close()
    metadata.blocking.close()
    return 0


if __name__ == "__main__":
    _, where, path, number, wanted = sys.argv
    sys.exit(asyncio.run(main(Path(where), TierPlace("filesystem", path=path), int(number), wanted)))
