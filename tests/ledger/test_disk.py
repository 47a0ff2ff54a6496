"""What the real disk does where the system has no descriptor left: it waits, for nothing is lost by that."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.ledger.files import disk
from magnetar.ledger.files.disk import RealDisk


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], list[Path]]:
    """Have opening fail so often with such an error; give the list of files that are flushed then."""

    def fail(times: int, error: int) -> list[Path]:
        left, opened, flushed = [times], dict[int, Path](), list[Path]()
        real_open, real_sync = os.open, os.fdatasync

        def open_(path: Any, flags: int, *args: Any) -> int:
            if left[0]:
                left[0] -= 1
                raise OSError(error, os.strerror(error))
            fd = real_open(path, flags, *args)
            opened[fd] = Path(path)
            return fd

        def sync(fd: int) -> None:
            flushed.append(opened[fd])
            real_sync(fd)

        monkeypatch.setattr(disk.os, "open", open_)
        monkeypatch.setattr(disk.os, "fdatasync", sync)
        return flushed

    monkeypatch.setattr(disk, "_DESCRIPTOR_S", 0.2)
    return fail


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_flush_waits_for_a_descriptor(
    tmp_path: Path, failing: Callable[[int, int], list[Path]], error: int
) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_bytes(b"x")
    flushed = failing(3, error)
    RealDisk().sync([paths[0], tmp_path / "deleted meanwhile", paths[1]])
    assert flushed == paths


@pytest.mark.parametrize(("times", "error"), [(1 << 30, errno.EMFILE), (1, errno.EIO), (1, errno.EACCES)])
def test_it_does_not_wait_for_ever_nor_for_anything_else(
    tmp_path: Path, failing: Callable[[int, int], list[Path]], times: int, error: int
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    flushed = failing(times, error)
    with pytest.raises(OSError, match=os.strerror(error)):
        RealDisk().sync([tmp_path / "a"])
    assert flushed == []
