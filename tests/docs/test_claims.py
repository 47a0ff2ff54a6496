"""What README and CHANGELOG claim in numbers is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.kafka.handlers import ROUTES
from magnetar.wire.kafka.messages import ApiKey

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md"])
def test_the_number_of_apis(page: str) -> None:
    (served, known) = re.findall(r"(\d+) of Kafka 4\.4's (\d+) APIs", (ROOT / page).read_text())[0]
    assert int(served) == len(ROUTES)
    table = (ROOT / "docs/compatibility.md").read_text()
    assert f"{served} of Apache Kafka's {known} APIs are served" in table
    assert len(ApiKey) >= int(known)


def test_the_pythons() -> None:
    (low, high) = re.findall(
        r'requires-python = ">=([\d.]+),<([\d.]+)"', (ROOT / "pyproject.toml").read_text()
    )[0]
    newest = f"3.{int(high.split('.')[1]) - 1}"
    assert f"Python {low} to {newest}" in (ROOT / "README.md").read_text()


def test_every_command_named_exists() -> None:
    commands = set(re.findall(r"^### `magnetar ([a-z]+)", (ROOT / "docs/cli.md").read_text(), re.MULTILINE))
    assert commands, "docs/cli.md has another form now"
    named = set(re.findall(r"^magnetar ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert named <= commands | {"standalone"}
