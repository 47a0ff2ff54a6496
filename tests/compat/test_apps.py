"""Other people's programs: each check has run, and says what it is about."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "compat"))

import run_apps

RESULTS: dict[str, Any] = json.loads(run_apps.RESULTS.read_text())


@pytest.mark.parametrize("check", run_apps.CHECKS, ids=lambda check: check.__name__)
def test_each_check_passed_here(check: Any) -> None:
    outcome = RESULTS["magnetar"]["checks"][check.__name__]
    assert (outcome["ok"], outcome["meaning"]) == (True, " ".join(check.__doc__.split()))


@pytest.mark.parametrize("check", run_apps.PEOPLES, ids=lambda check: check.__name__)
def test_each_check_was_seen_to_fail_where_records_are_lost(check: Any) -> None:
    seen = RESULTS["broken"]["loses"][check.__name__]
    assert (seen["failed"], "missing" in seen["detail"]) == (True, True), seen


@pytest.mark.parametrize("check", run_apps.ONCE, ids=lambda check: check.__name__)
def test_each_check_of_exactly_once_was_seen_to_fail_where_records_are_twice(check: Any) -> None:
    seen = RESULTS["broken"]["doubles"][check.__name__]
    assert (seen["failed"], "each once" in seen["detail"]) == (True, True), seen


def test_each_program_of_people_is_run() -> None:
    people = run_apps.HERE / "apps" / "people"
    source = (people.parent / "doublers.py").read_text()
    assert [file.name for file in people.iterdir() if f'Doubler("{file.name}"' not in source] == []
