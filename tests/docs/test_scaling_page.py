"""The page of scaling has the figures of the JSON beside what makes it, and its model is what it says."""

from __future__ import annotations

import json

import pytest

from benchmarks import scaling


def test_the_page_of_scaling_has_the_figures_of_its_json() -> None:
    assert scaling.text(json.loads(scaling.RESULTS.read_text())) == scaling.PAGE.read_text()


def test_a_line_is_fitted_with_the_least_squares() -> None:
    assert scaling.fit([(0, 1), (1, 3), (2, 5)]) == pytest.approx((1, 2))
    assert scaling.fit([(0, 0), (1, 1), (2, 0), (3, 1)]) == pytest.approx((0.2, 0.2))


def test_the_model_is_not_told_what_is_held_out() -> None:
    def point(n: int, memory: float) -> dict[str, object]:
        return {"n": n, "rss_mb": memory, "produce": {"cpu_us": 50.0}, "fetch": {"cpu_us": 50.0}}

    points = [
        point(10, 11),
        point(1000, 1001),
        point(10_000, 10_001),
        point(300, 602),
        point(100_000, 50_000.5),
    ]
    memory, produce, _ = scaling.modelled({"topics": points}).splitlines()
    assert "| 300: 301 for 602 (-50 %); 100,000: 1e+05 for 5e+04 (+100 %) |" in memory
    assert "1,000,000: 1e+06" in memory
    assert "| 0 | 300: 50 for 50 (+0 %);" in produce
