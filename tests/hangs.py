"""What pytest-timeout cannot end: a client's library that waits in C for good, and a clean-up after a failure.

Its alarm is heard only when Python runs again, and it is turned off as soon as something fails. Here the process of
the tests ends, with the stacks of all its threads on stderr; pytest-xdist begins another one, which goes on with
the test (``scheduling``). Without this a hanging ``close()`` of librdkafka, one in several hundred, held the whole
run for good.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator

import pytest

ALLOWED_MORE = 60
"""Seconds after the test's own limit, in which pytest-timeout may still do better."""

_stderr: int | None = None


def pytest_configure() -> None:
    """Keep what stderr is while nothing is captured."""
    global _stderr
    _stderr = os.dup(2)


def _limit(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    return limit and limit + float(os.environ.get("MAGNETAR_ALLOWED_MORE", ALLOWED_MORE))


def _watched(item: pytest.Item) -> Iterator[None]:
    limit = _limit(item)
    if not limit or _stderr is None:
        yield
        return
    faulthandler.dump_traceback_later(limit, exit=True, file=_stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


# Each is watched for itself: what fails in one turns off whatever watches it.


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """End the process if what a test needs hangs."""
    yield from _watched(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End the process if the test itself hangs."""
    yield from _watched(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """End the process if what cleans up after it hangs."""
    yield from _watched(item)
