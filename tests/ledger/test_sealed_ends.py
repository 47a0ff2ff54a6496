"""A log whose last ledger is sealed goes on behind it, and a read that ends early reads no further."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.ledger.files.disk import File, RealDisk, RealFile
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.info import decode_info, encode_info, path_of
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import MemoryStore
from tests.ledger.entries import append_durably, payload, read_all
from tests.ledger.test_recovery import settled

LOG = "public/default/persistent/t"


async def test_offsets_go_on_behind_a_last_ledger_that_is_sealed(tmp_path: Path) -> None:
    """A restored or repaired topic has no open ledger; what is kept beside the list is where its last one begins."""
    store = MemoryStore()
    policy = LedgerPolicy(flush=Flush.always, max_ledger_entries=5)
    engine = FilesEngine(tmp_path, store, RealDisk())
    await engine.start()
    log = await engine.open(LOG, policy)
    for number in range(11):
        await append_durably(log, b"%d" % number)
    await settled(lambda: [each.sealed for each in log.ledgers()] == [True, True, False])
    await engine.close()
    stored = store.blocking.get(path_of(LOG))
    assert stored is not None
    info = decode_info(stored.value, name=LOG)
    del info.ledgers[-1]
    info.properties["next_offset"] = str(info.ledgers[-1].first_offset)
    store.blocking.put(path_of(LOG), encode_info(info), stored.version)
    engine = FilesEngine(tmp_path, store, RealDisk())
    await engine.start()
    log = await engine.open(LOG, policy)
    assert log.log_end_offset == log.high_watermark == 10
    assert (await append_durably(log, b"after")).base_offset == 10
    assert [each.last_offset for each in await read_all(log)] == list(range(11))
    await engine.close()


class CountingFile(RealFile):
    read_bytes = 0

    def read(self, size: int, at: int) -> bytes:
        CountingFile.read_bytes += size
        return super().read(size, at)

    def read_now(self, size: int, at: int) -> bytes | None:
        CountingFile.read_bytes += size
        return super().read_now(size, at)


class CountingDisk(RealDisk):
    def open(self, path: Path, *, create: bool = False) -> File:
        return CountingFile(path, create=create)


async def test_a_read_that_ends_within_its_first_entry_reads_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), CountingDisk())
    await engine.start()
    log = await engine.open(LOG, LedgerPolicy(flush=Flush.os))
    for _ in range(200):
        await append_durably(log, bytes(10_000), b"second")
    monkeypatch.setattr(CountingFile, "read_bytes", 0)
    assert await log.read(20, max_bytes=1000, up_to=21) == []
    assert CountingFile.read_bytes < 100_000
    (entry,) = await log.read(20, max_bytes=1000, up_to=22)
    assert payload(entry).endswith(b"second\0")
    await engine.close()
