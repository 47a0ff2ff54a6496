"""What is known of every measure: the newest run's median and range, in ``docs/benchmarks.json`` beside the page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bars import BARS
from benchmarks.coordinated_bars import COORDINATED_BARS
from benchmarks.format_bars import FORMAT_BARS
from benchmarks.pulsar_bars import PULSAR_BARS
from benchmarks.samples import Bar, Medians, Samples
from benchmarks.spark_bars import SPARK_BARS

FILE = Path(__file__).parent.parent / "docs" / "benchmarks.json"


class Group(NamedTuple):
    """Bars that belong together on the page. ``key`` names their circumstances in the file."""

    key: str
    title: str
    against: str
    bars: Sequence[Bar]


def _are_shapes(bar: Bar) -> bool:
    return any(mark in bar.measure for mark in ("100 B, all alike", "varied", "keys", "a header"))


GROUPS = (
    Group(
        "kafka",
        "Kafka's clients",
        "Apache Kafka",
        tuple(bar for bar in BARS if not _are_shapes(bar)),
    ),
    Group(
        "shapes", "Records of other shapes", "Apache Kafka", tuple(bar for bar in BARS if _are_shapes(bar))
    ),
    Group("coordinated", "Transactions, groups, TLS, ACLs", "Apache Kafka", COORDINATED_BARS),
    Group("pulsar", "Pulsar's clients", "Apache Pulsar", PULSAR_BARS),
    Group("spark", "Spark", "Spark's own connector on Apache Kafka", SPARK_BARS),
    Group("formats", "Entry format `pulsar`", "our own format `kafka`", FORMAT_BARS),
)


class Figure(NamedTuple):
    """The median of some runs; the range and their number where they were kept."""

    median: float
    low: float | None = None
    high: float | None = None
    runs: int | None = None


class Figures(Medians):
    """Figures by measure and server, and the circumstances of each group's last run."""

    def __init__(self, groups: dict[str, dict[str, str]], known: dict[str, dict[str, Figure]]) -> None:
        self.groups = groups
        self._known = known

    @classmethod
    def load(cls, path: Path = FILE) -> Figures:
        content: dict[str, Any] = json.loads(path.read_text())
        known = {
            measure: {server: Figure(**each) for server, each in servers.items()}
            for measure, servers in content["figures"].items()
        }
        return cls(content["groups"], known)

    def save(self, path: Path = FILE) -> None:
        rows = {
            measure: {server: _kept(figure) for server, figure in servers.items()}
            for measure, servers in self._known.items()
        }
        path.write_text(json.dumps({"groups": self.groups, "figures": rows}, indent=1) + "\n")

    def take(self, samples: Samples, about: Mapping[str, str]) -> None:
        """Put a run's figures in the place of older ones; a group that it measured anything of is of this run."""
        for measure, servers in samples.values.items():
            for server, values in servers.items():
                median = samples.median(measure, server) or 0.0
                figure = Figure(median, min(values), max(values), len(values))
                self._known.setdefault(measure, {})[server] = figure
        for group in GROUPS:
            if any(
                bar.measure in samples.values and bar.ours in samples.values[bar.measure]
                for bar in group.bars
            ):
                self.groups[group.key] = dict(about)

    def median(self, measure: str, server: str) -> float | None:
        found = self._known.get(measure, {}).get(server)
        return None if found is None else found.median

    def measured(self, bars: Iterable[Bar]) -> list[tuple[Bar, float]]:
        """Return those bars of which there is a figure, with it; missed ones first, the worst of them at the top."""
        found = [(bar, value) for bar in bars if (value := self.value(bar)) is not None]
        return sorted(found, key=lambda each: (each[0].is_met(each[1]), _reached(*each)))


def _reached(bar: Bar, value: float) -> float:
    """Return the part of a missed bar that was reached; met ones keep their order."""
    if bar.is_met(value):
        return 1.0
    return value / bar.limit if bar.higher_is_better else bar.limit / value


def _kept(figure: Figure) -> dict[str, float | int]:
    return {name: value for name, value in figure._asdict().items() if value is not None}
