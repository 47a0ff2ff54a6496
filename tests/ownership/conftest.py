"""A broker whose bundles move when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ownership.process import MovingBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MovingBroker]:
    made = MovingBroker(tmp_path)
    yield made
    made.kill()
