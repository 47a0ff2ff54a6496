"""The page of stalls has the figures of the JSON beside it."""

from __future__ import annotations

import json

from benchmarks import stalls


def test_the_page_has_the_figures_of_the_json() -> None:
    assert stalls.text(json.loads(stalls.KEPT.read_text())) == stalls.PAGE.read_text()


def test_what_is_above_the_bar_is_in_bold() -> None:
    name = stalls.STALLS[0].name
    page = stalls.text({"a": {"day": "2030-01-01", "waits_ms": {name: 20.4}}})
    assert f"| {name} | **20** |" in page
    page = stalls.text({"a": {"day": "2030-01-01", "waits_ms": {name: 19.6}}})
    assert f"| {name} | 20 |" in page
