"""The first read on a machine waits for no compiler: it does without machine code, which is compiled meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.records import plain_arrow, plain_frames, readers
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of

READ = """
import json, sys
import pyarrow as pa
from magnetar.pipeline import tables
table = tables.open(sys.argv[2], "parquet")
tables.sync("t", table, options={"path": sys.argv[1]})
print(json.dumps([table.to_arrow().num_rows, "numba" in sys.modules]))
"""
TOLD = "what decodes records is compiled for this machine now"


def read(topic: TopicOnDisk, table: Path, cache: Path) -> tuple[Any, str]:
    """Sync a table in a process of its own, whose machine code is in ``cache``; give what it tells, and logs."""
    command = [sys.executable, "-c", READ, str(topic.data), str(table)]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a busy machine compiles for minutes
def test_a_first_read_does_not_wait_and_the_next_one_finds_machine_code(tmp_path: Path) -> None:
    from magnetar.pipeline import tables

    topic, cache = TopicOnDisk(tmp_path / "data"), tmp_path / "cache"
    told, logs = read(topic, tmp_path / "first", cache)
    assert told == [len(topic.rows()), False]
    assert logs.count(TOLD) == 1
    # The reader has ended, and what compiles goes on: a note for each group, and its lock is free.
    while len(list(cache.rglob("kept-*"))) < len(readers.GROUPS):
        time.sleep(0.1)
    with next(cache.rglob("compiling")).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    told, logs = read(topic, tmp_path / "second", cache)
    assert told == [len(topic.rows()), True]
    assert TOLD not in logs
    for name in ("first", "second"):
        assert rows_of(tables.open(tmp_path / name).to_arrow()) == topic.rows()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The code that this process reads by, on a machine where nothing is compiled yet."""
    there = SimpleNamespace(kept=False, status=None, compilers=0, imported=[])

    def compile_() -> Any:
        there.compilers += 1
        return SimpleNamespace(poll=lambda: there.status)

    def import_(name: str) -> Any:
        there.imported.append(name)
        return SimpleNamespace(decode_rows=len, walk=len)

    monkeypatch.setattr(readers, "READERS", ("not.imported.yet", "nor.this"))
    monkeypatch.setattr(readers, "is_kept", lambda _: there.kept)
    monkeypatch.setattr(readers, "note_kept", lambda _: None)
    monkeypatch.setattr(readers, "_compile", compile_)
    monkeypatch.setattr(readers, "import_module", import_)
    there.it = readers._Machine()
    return there


def test_machine_code_is_taken_as_soon_as_it_is_there(machine: Any) -> None:
    for _ in range(3):
        assert machine.it.get(readers.WORTH_IT).decode_rows is plain_arrow.decode_rows
        assert machine.it.get(readers.WORTH_IT).walk is plain_frames.walk
    assert machine.compilers == 1
    machine.status = 0  # of a compiler that found another one at work
    assert not machine.it.get(readers.WORTH_IT).loaded
    machine.kept = True
    assert machine.it.get(readers.WORTH_IT).loaded
    assert machine.it.decode_rows is machine.it.walk is len
    assert machine.imported == list(readers.READERS)


def test_a_few_records_are_read_without_machine_code_even_if_it_is_there(machine: Any) -> None:
    machine.kept = True
    for _ in range(3):
        assert not machine.it.get(readers.WORTH_IT // 4).loaded
    assert machine.it.get(readers.WORTH_IT // 4).loaded
    assert machine.compilers == 0


def test_where_the_compiler_fails_the_reader_finds_out_why(machine: Any) -> None:
    machine.status = 1
    machine.it.get(readers.WORTH_IT)
    assert machine.imported == list(readers.READERS)  # which raises what the compiler met


def test_one_process_on_a_machine_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_(name: str) -> Any:
        raise AssertionError(f"{name} is being compiled elsewhere")

    monkeypatch.setattr(readers, "directory", lambda: tmp_path)
    monkeypatch.setattr(readers, "is_kept", lambda _: False)
    monkeypatch.setattr(readers, "import_module", import_)
    with (tmp_path / "compiling").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        readers.main()
    with pytest.raises(AssertionError):
        readers.main()
