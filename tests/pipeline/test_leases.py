"""Leases: what a reader past the broker still needs outlives retention; what nobody needs any more does not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.leases import HeldLease, needed_offset
from magnetar.ledger.port import LedgerPolicy
from magnetar.metadata import MemoryStore
from tests.admin.house import House

NAME = "public/default/persistent/t-partition-0"
POLICY = LedgerPolicy(max_ledger_entries=5, retention_ms=1000)


async def test_retention_leaves_what_is_leased(tmp_path: Path) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await engine.open(NAME, POLICY)
    for _ in range(30):
        appended = log.append([b"\0\0\0\0", b"x"], messages=1, timestamp_ms=1)
        if appended.done is not None:
            await appended.done
    while not all(ledger.sealed for ledger in log.ledgers()[:-1]):  # noqa: ASYNC110  (the engine seals behind us)
        await asyncio.sleep(0.01)
    lease = HeldLease(tmp_path, {NAME: 12, "public/default/persistent/other": 0})
    await log.retain(10_000)
    assert log.log_start_offset == 10
    lease.move({NAME: 21})
    await log.retain(10_000)
    assert log.log_start_offset == 20
    lease.release()
    await log.retain(10_000)
    assert log.log_start_offset >= 25
    await engine.close()


HOLD = """
import sys, time
from pathlib import Path
from magnetar.ledger.files.leases import HeldLease
lease = HeldLease(Path(sys.argv[1]), {sys.argv[2]: 7})
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_reader_holds_nothing(tmp_path: Path) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), NAME], stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "held\n"
    assert needed_offset(tmp_path, NAME) == 7
    os.kill(reader.pid, signal.SIGKILL)
    reader.wait()
    reader.stdout.close()
    assert needed_offset(tmp_path, NAME) is None
    assert not list((tmp_path / "pins").iterdir())


def test_the_lowest_of_several_counts_and_time_ends_what_nobody_holds(tmp_path: Path) -> None:
    first, second = HeldLease(tmp_path, {NAME: 9}), HeldLease(tmp_path, {NAME: 4}, until_ms=5000)
    assert needed_offset(tmp_path, NAME, 9000) == 4
    second.leave()
    assert needed_offset(tmp_path, NAME, 4999) == 4
    assert needed_offset(tmp_path, NAME, 5000) == 9
    assert needed_offset(tmp_path, "public/default/persistent/u") is None
    first.release()


@pytest.mark.parametrize("content", [b"", b"{", b'{"needs": 3}'])
def test_a_living_pin_that_cannot_be_read_holds_everything(tmp_path: Path, content: bytes) -> None:
    lease = HeldLease(tmp_path, {NAME: 9})
    (path,) = (tmp_path / "pins").glob("*.pin")
    path.write_bytes(content)
    assert needed_offset(tmp_path, NAME) == -1
    lease.release()
    path.write_bytes(content)
    assert needed_offset(tmp_path, NAME) is None
    assert not path.exists()


def left_behind(root: Path) -> Path:
    """A pin whose maker is gone."""
    (root / "pins").mkdir()
    stale = root / "pins" / "1-stale.pin"
    stale.write_text(json.dumps({"needs": {NAME: 3}, "until_ms": 0}))
    return stale


def test_a_stale_pin_that_cannot_be_removed_holds_nothing_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stale = left_behind(tmp_path)

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refused)
    assert [needed_offset(tmp_path, NAME) for _ in range(3)] == [None] * 3
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(stale) in line


@pytest.mark.parametrize("refused_at", ["1-stale.pin", "pins"])
def test_a_pin_that_cannot_be_read_holds_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_at: str
) -> None:
    left_behind(tmp_path)
    refusal = PermissionError(13, "Permission denied", refused_at)

    def refused(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(*((os, "scandir") if refused_at == "pins" else (Path, "open")), refused)
    assert needed_offset(tmp_path, NAME) == -1


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), ValueError("nobody has thought of it")], ids=["disk", "bug"]
)
async def test_retention_goes_on_past_a_partition_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with House(tmp_path / "data") as house:
        partitions = [await house.topic(name, retention_bytes="0") for name in ("a", "b", "c")]
        for partition in partitions:
            await house.produce(partition)
            await partition.log.roll()
            await house.produce(partition)

        def refused(now_ms: int) -> None:
            raise error

        monkeypatch.setattr(partitions[1].log, "retain", refused)
        # What nobody has thought of is told to whoever looks after duties.
        with pytest.raises(ValueError) if isinstance(error, ValueError) else nullcontext():
            await house.duties.retention.retain()
        assert [partition.log.log_start_offset > 0 for partition in partitions] == [True, False, True]
