"""The servers that a module's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.servers import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(autouse=True)
def whole_cluster(request: pytest.FixtureRequest) -> None:
    """Have every test, and the second try of one, begin with bookies that are there, whatever was before."""
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").mend()
