"""One broker for the tests of a module, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = "--set", "group.initial.rebalance.delay.ms=0"
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", *options) as process:
        yield process
