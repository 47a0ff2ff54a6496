"""What the journal is replayed for at a start, and what it leaves alone."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from pathlib import Path

import pytest

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import HEADER_BYTES, ledger_path
from magnetar.ledger.port import Flush, LedgerPolicy, StoredEntry
from magnetar.metadata import SqliteStore
from tests.ledger.directory import with_engine
from tests.ledger.entries import append_durably, read_all

LOG = "public/default/persistent/t"
ALWAYS = LedgerPolicy(flush=Flush.always)


def killed(data: Path, copy: Path) -> Path:
    """Leave in ``copy`` what a broker leaves that is killed when all of a ledger is in the journal; give its path."""

    async def work() -> int:
        store = SqliteStore(data / "metadata.sqlite")
        engine = FilesEngine(data, store, RealDisk())
        await engine.start()
        log = await engine.open(LOG, ALWAYS)
        for number in range(5):
            await append_durably(log, b"%d" % number)
        shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.tmp"))
        found = log.ledgers()[-1].ledger_id
        await engine.close()
        store.blocking.close()
        return found

    return ledger_path(copy, asyncio.run(work()))


async def _content(engine: FilesEngine) -> list[StoredEntry]:
    return await read_all(await engine.open(LOG, ALWAYS))


def test_a_header_that_is_whole_stays_what_it_is(tmp_path: Path) -> None:
    path = killed(tmp_path / "data", tmp_path / "copy")
    whole = path.read_bytes()
    assert len(with_engine(tmp_path / "copy", _content)) == 5
    assert path.read_bytes()[: len(whole)] == whole


def test_a_ledger_that_lost_all_has_its_header_and_entries_again(tmp_path: Path) -> None:
    path = killed(tmp_path / "data", tmp_path / "copy")
    whole = path.read_bytes()
    for lost in (bytes(len(whole)), b""):
        copy = tmp_path / f"lost{len(lost)}"
        shutil.copytree(tmp_path / "copy", copy)
        (copy / path.relative_to(tmp_path / "copy")).write_bytes(lost)
        assert len(with_engine(copy, _content)) == 5
        found = (copy / path.relative_to(tmp_path / "copy")).read_bytes()
        assert found[HEADER_BYTES : len(whole)] == whole[HEADER_BYTES:]


def test_the_log_says_how_much_it_was_and_how_long_it_took(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = killed(tmp_path / "data", tmp_path / "copy")
    size = path.stat().st_size - HEADER_BYTES
    with caplog.at_level(logging.INFO, "magnetar.ledger"):
        with_engine(tmp_path / "copy", _content)
    (told,) = [each.getMessage() for each in caplog.records if "replayed" in each.getMessage()]
    words = rf"journal replayed: {size} bytes of 1 ledgers in \d+\.\d\d s, the reading of 1 files included"
    assert re.fullmatch(words, told)
