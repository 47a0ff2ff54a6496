"""Rates: what changed between two looks, per second."""

from __future__ import annotations

import pytest

from magnetar.pulsar import rates
from magnetar.pulsar.rates import Meter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_meter_tells_what_came_since_the_look_before_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(rates, "time", clock)
    meter = Meter((10, 0))
    assert meter.per_second((10, 0)) == (0, 0)
    assert meter.per_second((14, 1)) == (4, 1)  # as if a second had passed: shorter times say too little
    clock.now += 0.5
    assert meter.per_second((14, 1)) == (4, 1)
    clock.now += 1.5  # two seconds after the first look, which is still the one to compare with
    assert meter.per_second((14, 1)) == (2, 0.5)
    clock.now += 2
    assert meter.per_second((20, 1)) == (3, 0)
    clock.now += 2
    assert meter.per_second((20, 1)) == (0, 0)
