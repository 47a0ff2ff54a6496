"""One process per data directory, even if somebody takes its lock file for a stale one; and who may read what."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.metadata import DirectoryInUse, DirectoryLock, SqliteFile


def test_without_its_lock_file_a_directory_is_still_held(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(DirectoryInUse):
        DirectoryLock(tmp_path)
    with pytest.raises(DirectoryInUse):
        SqliteFile(tmp_path / "metadata.sqlite")
    assert not (tmp_path / "metadata.sqlite").exists()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_lock_file_that_is_gone_is_made_again(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    assert not lock.renew()
    (tmp_path / "lock").unlink()
    assert lock.renew()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").write_text("")
    assert lock.renew()
    assert not lock.renew()
    with (tmp_path / "lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    lock.release()


def test_a_lock_file_that_another_process_holds_is_told(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    (tmp_path / "lock").unlink()
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DirectoryInUse):
            lock.renew()
    lock.release()


def test_where_directories_cannot_be_locked_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryInUse):
        DirectoryLock(tmp_path)
    lock.release()


MAKE = """
import os, sys
from pathlib import Path
os.umask(int(sys.argv[2], 8))
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.leases import HeldLease
from magnetar.metadata import SqliteFile
root = Path(sys.argv[1]) / "data"
store = SqliteFile(root / "metadata.sqlite")
store.put("/n", b"1")
disk = RealDisk()
disk.open(root / "ledgers" / "00" / "0.ledger", create=True).close()
disk.open_journal(root / "journal" / "0000.journal", 4096).close()
disk.replace({root / "ledgers" / "00" / "0.index": b"index"})
pin = HeldLease(root, {})
modes = {str(path.relative_to(root)): oct(path.stat().st_mode & 0o777) for path in [root, *root.rglob("*")]}
print(*sorted(set(mode for path, mode in modes.items())), modes)
"""


@pytest.mark.parametrize(
    ("umask", "modes"), [("0", "0o640 0o750"), ("022", "0o640 0o750"), ("077", "0o600 0o700")]
)
def test_files_are_their_users_alone_and_a_groups_to_read(tmp_path: Path, umask: str, modes: str) -> None:
    command = [sys.executable, "-c", MAKE, str(tmp_path), umask]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(modes + " {"), said
