"""Coordinators that have begun, on a log whose appends can be held."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.kafka.coordinators.groups import GroupCoordinator
from tests.coordinators.test_coordinator import SlowLog, started


@pytest.fixture
async def log() -> SlowLog:
    return SlowLog()


@pytest.fixture
async def groups(log: MemoryOffsetsLog) -> AsyncIterator[GroupCoordinator]:
    coordinator = await started(log)
    yield coordinator
    await coordinator.close()
