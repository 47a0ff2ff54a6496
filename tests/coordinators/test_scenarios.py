"""Scenarios of groups as text: a command, ``----``, what happened, an empty line. ``--rewrite`` renews them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.coordinators.stage import Stage

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
_STEP = re.compile(
    r"^(?P<notes>(?:#.*\n|\n)*)(?P<command>[^\n]+)\n----\n(?P<happened>(?:.+\n)*)", re.MULTILINE
)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    stage = Stage()
    text = path.read_text()
    renewed = []
    for step in _STEP.finditer(text):
        happened = stage.run(step["command"])
        body = f"{happened}\n" if happened else ""
        renewed.append(f"{step['notes']}{step['command']}\n----\n{body}")
    if request.config.getoption("--rewrite", default=False):
        path.write_text("".join(renewed))
    assert "".join(renewed) == text or request.config.getoption("--rewrite", default=False)
