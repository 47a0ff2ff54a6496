"""A broker with all three protocols, and a browser without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.process import BrokerProcess
from tests.security.signing import SECURED

OPEN = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("console") / "data"
    with BrokerProcess(data, *OPEN, "--set", "group.initial.rebalance.delay.ms=0") as process:
        yield process


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose console changes things."""
    data = tmp_path_factory.mktemp("console-changing") / "data"
    sets = ("group.initial.rebalance.delay.ms=0", "console.read.only=false")
    words = [word for each in sets for word in ("--set", each)]
    with BrokerProcess(data, *OPEN, *words) as process:
        yield process


@pytest.fixture
def http(house: BrokerProcess) -> Iterator[httpx.Client]:
    with browser(house) as client:
        yield client


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Takes tokens, and passwords of a file that may change."""
    home = tmp_path_factory.mktemp("console-secured")
    write_users(home / "users", root="secret")
    settings = (*SECURED, f"basic.auth.conf={home / 'users'}", "listeners=SASL_PLAINTEXT://127.0.0.1:0")
    sets = [word for each in settings for word in ("--set", each)]
    with BrokerProcess(home / "data", "--http", "127.0.0.1:0", *sets, kafka=None) as process:
        yield process


def write_users(path: Path, **passwords: str) -> None:
    """Write a file as htpasswd does."""
    import bcrypt

    lines = [
        f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}\n"
        for user, password in passwords.items()
    ]
    path.write_text("".join(lines))


def browser(process: BrokerProcess) -> httpx.Client:
    """Return what asks as a browser does, and follows no redirects."""
    url = f"http://{process.served['http'][0]}"
    return httpx.Client(base_url=url, timeout=60, headers={"Accept": "text/html,*/*;q=0.8"})
