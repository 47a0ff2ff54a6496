"""Fixtures for pytest, which finds this package by itself where Magnetar is installed.

    def test_it(magnetar):                       # a broker of this test alone
        producer = Producer({"bootstrap.servers": magnetar.bootstrap_servers})

    @pytest.mark.magnetar(settings={"num.partitions": 3}, faults=True)
    def test_three(magnetar): ...

``magnetar_session`` is one broker for all tests of a run; call ``reset()`` on it to begin with no topics. Settings for
all of them stand in pytest's configuration, one NAME=VALUE a line: ``magnetar_settings``.

Nothing of Magnetar is imported before a test asks for a broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from magnetar.testing.broker import AsyncBroker, Broker

_SETTINGS = "magnetar_settings"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what may stand in pytest's configuration."""
    parser.addini(_SETTINGS, "settings of brokers under test, NAME=VALUE a line", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "magnetar(settings={}, faults=False): settings of this test's broker, and whether it can be cut off",
    )


def _configured(config: pytest.Config) -> dict[str, object]:
    lines: list[str] = config.getini(_SETTINGS)
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _of_test(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what a test's broker is made with: the marker's words over the configuration's."""
    marker = request.node.get_closest_marker("magnetar")
    words = dict(marker.kwargs) if marker is not None else {}
    words["settings"] = {**_configured(request.config), **words.get("settings", {})}
    return words


@pytest.fixture
def magnetar(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yield a broker for this test alone."""
    from magnetar.testing.broker import Broker

    with Broker(**_of_test(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def magnetar_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yield one broker for all tests of this run."""
    from magnetar.testing.broker import Broker

    with Broker(_configured(request.config)) as broker:
        yield broker


try:
    import pytest_asyncio
except ImportError:  # then there is no test that could ask for it
    pass
else:

    @pytest_asyncio.fixture
    async def magnetar_async(request: pytest.FixtureRequest) -> AsyncIterator[AsyncBroker]:
        """Yield a broker for this test alone, on the test's event loop."""
        from magnetar.testing.broker import AsyncBroker

        async with AsyncBroker(**_of_test(request)) as broker:
            yield broker
