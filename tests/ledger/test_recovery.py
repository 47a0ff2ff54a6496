"""What a broker reads again after a crash is bounded, however often it crashed, and is not read twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.ledger.files import checkpoints
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.recovery import kept_index
from magnetar.ledger.formats.layout import index_path
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import SqliteStore
from tests.ledger.directory import with_engine
from tests.ledger.entries import append_durably, prepared, read_all

LOG = "public/default/persistent/t"


def crash(data: Path, copy: Path, policy: LedgerPolicy, entries: int) -> tuple[int, int]:
    """Append, and leave in ``copy`` what a killed broker leaves; give how many entries are in it, and in its index."""

    async def work() -> tuple[int, int]:
        store = SqliteStore(data / "metadata.sqlite")
        engine = FilesEngine(data, store, RealDisk())
        await engine.start()
        log = await prepared(await engine.open(LOG, policy))
        for n in range(entries):
            await append_durably(log, b"%d" % n)
            await asyncio.sleep(0)

        def kept() -> int:
            return kept_index(engine.shared.disk, data, log.ledgers()[-1])[0].entries

        await settled(lambda: log.log_end_offset - kept() < 10 + entries)
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.tmp"))  # those come and go meanwhile
        found = log.log_end_offset, kept()
        await engine.close()
        store.blocking.close()
        return found

    return asyncio.run(work())


async def settled(is_so: Callable[[], bool]) -> None:
    """Give the engine's work in the background its time."""
    for _ in range(500):
        if is_so():
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("flush", [Flush.os, Flush.always])
def test_one_crash_after_the_other_reads_no_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Flush
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_ENTRIES", 10)
    data, behind = tmp_path / "0", []
    data.mkdir()
    for number in range(1, 8):
        written, kept = crash(data, tmp_path / str(number), LedgerPolicy(flush=flush), entries=7)
        assert written == 7 * number
        behind.append(written - kept)
        data = tmp_path / str(number)
    assert max(behind) < 10 + 7, behind
    assert sum(b < 7 * (n + 1) for n, b in enumerate(behind)) >= 5, "nothing was ever kept"


@pytest.mark.parametrize("lost", ["gone", "damaged"])
def test_a_sealed_ledger_s_index_is_rebuilt_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    policy = LedgerPolicy(max_ledger_entries=20)

    async def fill(engine: FilesEngine) -> int:
        log = await prepared(await engine.open(LOG, policy))
        for n in range(30):
            await append_durably(log, b"%d" % n)
        await settled(lambda: log.ledgers()[0].sealed)
        return log.ledgers()[0].ledger_id

    async def read(engine: FilesEngine) -> int:
        return len(await read_all(await engine.open(LOG, policy)))

    path = index_path(tmp_path, with_engine(tmp_path, fill))
    due = path.read_bytes()
    if lost == "gone":
        path.unlink()
    else:
        path.write_bytes(due[:50] + b"?" + due[51:])
    assert with_engine(tmp_path, read) == 30
    rebuilt = path.read_bytes()
    assert rebuilt[: len(due) // 2] == due[: len(due) // 2]

    def no_scan(*_: object, **__: object) -> int:
        raise AssertionError("it was read again")

    monkeypatch.setattr("magnetar.ledger.files.recovery.scan", no_scan)
    assert with_engine(tmp_path, read) == 30
