"""A cluster that the tests of a module share, and a proxy in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.processes import ClusterProcess, ProxyProcess


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(home) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(home: Path, cluster: ClusterProcess) -> Iterator[ProxyProcess]:
    with ProxyProcess(home, cluster) as made:
        yield made
        assert "Traceback" not in made.log.read_text()
