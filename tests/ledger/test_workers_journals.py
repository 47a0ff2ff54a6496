"""Several engines on one directory, each with a journal of its own: what one that was killed leaves is not lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from magnetar.doctor.ledgers import verify
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.replay import journal_folder, replay_worker
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.port import Flush, LedgerPolicy, wall_clock_ms
from magnetar.metadata import SqliteFile, SqliteStore
from tests.ledger.directory import with_engine
from tests.ledger.entries import append_durably, read_all

ALWAYS = LedgerPolicy(flush=Flush.always)
LOGS = {1: "public/default/persistent/one", 2: "public/default/persistent/two"}


def killed(data: Path, copy: Path) -> list[Path]:
    """Leave in ``copy`` what two workers leave that are killed; give the files of their ledgers there."""

    async def work() -> list[Path]:
        store = SqliteStore(data / "metadata.sqlite")
        engines = {number: FilesEngine(data, store, RealDisk(), worker=number) for number in LOGS}
        found = []
        for number, engine in engines.items():
            await engine.start()
            log = await engine.open(LOGS[number], ALWAYS, epoch=1)
            for entry in range(5):
                await append_durably(log, b"%d of %d" % (entry, number))
            found.append(ledger_path(copy, log.ledgers()[-1].ledger_id))
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.tmp"))
        for engine in engines.values():
            await engine.close()
        store.blocking.close()
        return found

    return asyncio.run(work())


def empty(files: Sequence[Path]) -> None:
    """Have files lose all that the journal vouches for, as a power loss may do it."""
    for file in files:
        file.write_bytes(b"")


def count(data: Path, log: str) -> int:
    async def work(engine: FilesEngine) -> int:
        return len(await read_all(await engine.open(log, ALWAYS)))

    return with_engine(data, work)


def test_each_has_its_own_journal_and_takes_it_away_when_it_ends_in_order(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    killed(data, copy)
    assert [list(journal_folder(copy, number).glob("*.journal")) != [] for number in LOGS] == [True, True]
    assert not list(journal_folder(data).rglob("*.journal"))
    assert [count(data, log) for log in LOGS.values()] == [5, 5]


def test_one_process_alone_recovers_what_all_of_them_left(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    empty(killed(tmp_path / "data", copy))
    notes = [each for each in verify(copy).findings if each.file.endswith(".journal")]
    assert {Path(each.file).parent.name for each in notes} == {"worker-1", "worker-2"}
    assert [count(copy, log) for log in LOGS.values()] == [5, 5]
    assert not list(journal_folder(copy).glob("worker-*/*.journal"))
    assert [count(copy, log) for log in LOGS.values()] == [5, 5]


@pytest.mark.parametrize("dead", [1, 2])
def test_what_a_dead_worker_left_is_written_again_and_nothing_else(tmp_path: Path, dead: int) -> None:
    copy = tmp_path / "copy"
    files = killed(tmp_path / "data", copy)
    empty(files)
    store = SqliteFile(copy / "metadata.sqlite")
    assert replay_worker(copy, dead, RealDisk(), store, wall_clock_ms) == 1
    assert replay_worker(copy, dead, RealDisk(), store, wall_clock_ms) == 0
    store.close()
    assert [file.stat().st_size > 0 for file in files] == [number == dead for number in LOGS]


def test_a_ledger_that_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    files = killed(tmp_path / "data", copy)
    store = SqliteFile(copy / "metadata.sqlite")
    store.delete("/managed-ledgers/" + LOGS[1])
    files[0].unlink()
    assert replay_worker(copy, 1, RealDisk(), store, wall_clock_ms) == 1
    store.close()
    assert not files[0].exists()
