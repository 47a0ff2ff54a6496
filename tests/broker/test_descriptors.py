"""A process without free descriptors says so, and not more often than is of use."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from magnetar.base.descriptors import AGAIN_AFTER_S, DescriptorWatch, take_one


async def test_it_says_so_once_a_minute_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now, failure = [0.0], [errno.EMFILE]

    def take() -> None:
        if failure[0]:
            raise OSError(failure[0], os.strerror(failure[0]))

    watch = DescriptorWatch(lambda: now[0], take)
    for second in range(150):
        now[0] = float(second)
        await watch.look()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 + 149 // AGAIN_AFTER_S
    assert all("Too many open files" in line and "new connections are closed" in line for line in lines)
    failure[0] = 0
    await watch.look()
    await watch.look()
    assert [record.getMessage() for record in caplog.records[len(lines) :]] == [
        "there are file descriptors again: new connections are taken"
    ]
    failure[0] = errno.ENFILE
    await watch.look()
    assert "Too many open files in system" in caplog.records[-1].getMessage()


async def test_what_else_fails_is_not_taken_for_it() -> None:
    def take() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await DescriptorWatch(lambda: 0.0, take).look()


def test_it_keeps_none() -> None:
    """Many times, for threads of other tests open something, too."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        take_one()
    assert len(os.listdir("/proc/self/fd")) < before + 100
