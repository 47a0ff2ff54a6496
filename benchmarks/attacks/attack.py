"""What an attack is, and how it is made beside the innocent client."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.attacks.innocent import Innocent
from benchmarks.attacks.target import BUDGET_MB, Target

MAX_WAIT_MS = 50.0
MAX_GROWTH_MB = BUDGET_MB + 64.0
_AFTER_S = 2.5
"""What an attack leaves behind shows within two of the broker's looks around, which come each second."""


class Attack(NamedTuple):
    """One way to do harm. ``prepare`` is not measured; what it gives goes to ``strike``, which may tell an outcome."""

    name: str
    prepare: Callable[[Target], Any]
    strike: Callable[[Target, Any], str | None]
    settings: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What others noticed; waits are in milliseconds, ``growth_mb`` is the largest resident size less that before."""

    name: str
    longest_ms: float
    median_ms: float
    growth_mb: float
    seconds: float
    stolen_ms: float
    told: str

    @property
    def meets_the_bar(self) -> bool:
        return self.longest_ms <= MAX_WAIT_MS and self.growth_mb <= MAX_GROWTH_MB


def made(attack: Attack, executable: Path | None = None) -> Outcome:
    """Make an attack on a broker of its own, of another environment if its ``magnetar`` is given."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        Target(Path(scratch) / "b", *attack.settings, executable=executable) as target,
    ):
        prepared = attack.prepare(target)
        gc.collect()
        with Innocent(target.address, target.pid) as innocent:
            time.sleep(0.5)
            target.forget_peak()
            before, stolen = target.resident_mb, _stolen_ms()
            began = time.monotonic()
            told = attack.strike(target, prepared) or ""
            struck = time.monotonic()
            time.sleep(_AFTER_S)
            waits = innocent.end(began, struck + _AFTER_S)
        growth = target.peak_mb - before
        return Outcome(
            attack.name,
            waits.longest * 1000,
            waits.median * 1000,
            growth,
            struck - began,
            _stolen_ms() - stolen,
            told,
        )


def _stolen_ms() -> float:
    """Return for how long the machine's processors did something else than this machine, so far."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) * 1000 / os.sysconf("SC_CLK_TCK")
