"""Whatever call on the metadata's files fails, nothing that was committed is lost, and the store opens again.

``MAGNETAR_FAULT_STEP`` says which part of all calls is made to fail, each in a run of its own: 1 means every one.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.metadata import MetadataCorrupt, RowsMismatch, SqliteFile
from magnetar.metadata.seal import SEAL_BYTES
from tests.crash import faults

DRIVER = Path(__file__).with_name("fault_driver.py")
STEP = int(os.environ.get("MAGNETAR_FAULT_STEP", "48"))


def run(step: int, *errors: str) -> str:
    if faults.compiler() is None:
        pytest.skip("no C compiler to build the disk that fails")
    first = random.randrange(step)
    with faults.quick_folder() as folder:
        root = folder / "data"
        root.mkdir()
        plan = faults.Plan(folder / "plan", root)
        done = subprocess.run(
            [sys.executable, DRIVER, plan.file, root, str(first), str(step), *errors],
            env={
                **os.environ,
                "PYTHONPATH": str(DRIVER.parents[2]),
                **plan.environment(faults.build(folder)),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, f"first {first}, step {step}: {done.stdout}{done.stderr[-4000:]}"
    return done.stdout


def test_some_calls_that_fail() -> None:
    assert " cases, " in run(STEP, "EIO", "short")


@pytest.mark.slow
def test_many_calls_that_fail() -> None:
    assert " cases, " in run(max(1, STEP // 8), "ENOSPC", "EIO", "short", "EDQUOT", "EROFS", "EMFILE")


def test_a_seal_that_cannot_follow_undoes_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "metadata.sqlite"
    store = SqliteFile(file)
    store.put("/before", b"1")

    def refused(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refused)
        assert store.put("/meanwhile", b"2") == 0
    assert store.put("/meanwhile", b"3", 0) == 1
    store.put("/after", b"4")
    expected = [("/after", b"4"), ("/before", b"1"), ("/meanwhile", b"3")]
    assert [(path, stored.value) for path, stored in store.scan("/")] == expected
    store.close()
    again = SqliteFile(file)
    assert [(path, stored.value) for path, stored in again.scan("/")] == expected
    again.close()


def test_of_two_seals_the_whole_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    store = SqliteFile(file)
    for number in range(5):
        store.put("/n", b"%d" % number)
    seal = file.with_name("metadata.sqlite.seal")
    content = seal.read_bytes()
    assert len(content) == 2 * SEAL_BYTES
    store._db.close()  # killed: nothing is sealed
    store._held.close()
    for at in (0, SEAL_BYTES):
        torn = bytearray(content)
        torn[at + 8 : at + SEAL_BYTES] = bytes(SEAL_BYTES - 8)
        seal.write_bytes(torn)
        SqliteFile(file, read_only=True).close()
        again = SqliteFile(file)
        assert again.get("/n") == (b"4", 4)
        again._db.close()
        again._held.close()
    seal.write_bytes(bytes(2 * SEAL_BYTES))
    with pytest.raises(MetadataCorrupt, match="seal"):
        SqliteFile(file)


def test_rows_that_do_not_add_up_are_taken_on_demand_alone(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    store = SqliteFile(file)
    store.put("/n/1", b"one")
    store.put("/n/2", b"two")
    store.close()
    damaged = sqlite3.connect(file)
    damaged.execute("UPDATE digest SET nodes = 1")
    damaged.commit()
    damaged.close()
    file.with_name("metadata.sqlite.seal").unlink()
    with pytest.raises(RowsMismatch):
        SqliteFile(file)
    taken = SqliteFile(file, takes_rows=True)
    assert [path for path, _ in taken.scan("/n/")] == ["/n/1", "/n/2"]
    taken.close()
    SqliteFile(file).close()
