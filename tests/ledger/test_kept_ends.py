"""What the end of a log leaves for the next start: a checkpoint, a journal, an error, each only where it is one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.files import checkpoints
from magnetar.ledger.files.disk import File, RealDisk, RealFile
from magnetar.ledger.files.engine import _STATE as engine_state
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import index_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import MemoryStore
from tests.ledger.entries import append_durably, read_all
from tests.ledger.test_recovery import settled
from tests.simulation.disk import SimulatedDisk

LOG = "public/default/persistent/t"
ALWAYS, OS = LedgerPolicy(flush=Flush.always), LedgerPolicy(flush=Flush.os)


@pytest.mark.parametrize(("policy", "counts"), [(ALWAYS, True), (OS, False)], ids=["durable", "lazy"])
async def test_the_checkpoint_of_a_durable_log_counts_after_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: LedgerPolicy, counts: bool
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_ENTRIES", 10)
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await engine.open(LOG, policy)
    for number in range(30):
        await append_durably(log, b"%d" % number)
    path = index_path(tmp_path, log.ledgers()[-1].ledger_id)
    await settled(path.exists)

    def kept() -> int:
        return SparseIndex.decode(path.read_bytes(), path, "the boot after")[0].entries

    await settled(lambda: kept() >= 10)
    assert (kept() >= 10) is counts
    await engine.close()


async def test_what_was_acknowledged_outlives_a_last_checkpoint_that_failed() -> None:
    disk, store = SimulatedDisk(Random(5)), MemoryStore()
    engine = FilesEngine(Path("/data"), store, disk)
    await engine.start()
    log = await engine.open(LOG, ALWAYS)
    for number in range(20):
        await append_durably(log, b"%d" % number)
    disk.sync_fails = 1.0
    await engine.close()
    disk.restart(power_lost=True)
    engine = FilesEngine(Path("/data"), store, disk)
    await engine.start()
    log = await engine.open(LOG, ALWAYS)
    assert [each.last_offset for each in await read_all(log)] == list(range(20))
    await engine.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_an_end_is_clean_only_with_its_last_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The next start would not look at the journal otherwise, and the files may lack what was acknowledged."""
    store = MemoryStore()
    engine = FilesEngine(tmp_path, store, RealDisk())
    await engine.start()
    await append_durably(await engine.open(LOG, ALWAYS), b"value")

    async def keep(some: object) -> None:
        raise StorageFailed("the last flush")

    if fails:
        monkeypatch.setattr(engine.shared.flushing, "keep", keep)
    before = await store.get(engine_state)
    await engine.close()
    assert (await store.get(engine_state) == before) is fails


class UnreadableFile(RealFile):
    def read(self, size: int, at: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def read_now(self, size: int, at: int) -> bytes | None:
        return self.read(size, at)


class UnreadableDisk(RealDisk):
    """Its files cannot be read any more, once it is ``ill``."""

    ill = False

    def open(self, path: Path, *, create: bool = False) -> File:
        return UnreadableFile(path, create=create) if self.ill else super().open(path, create=create)


async def test_a_read_that_fails_says_so_to_who_reads(tmp_path: Path) -> None:
    disk = UnreadableDisk()
    engine = FilesEngine(tmp_path, MemoryStore(), disk)
    await engine.start()
    log = await engine.open(LOG, OS)
    await append_durably(log, b"value")
    assert len(await log.read(0, max_bytes=1)) == 1
    disk.ill = True
    engine.shared.files.close()  # what was open is opened again
    with pytest.raises(StorageFailed, match="Input/output error"):
        await log.read(0, max_bytes=1)
    disk.ill = False
    engine.shared.files.close()
    await engine.close()
