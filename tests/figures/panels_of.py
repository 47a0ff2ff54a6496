"""Which panels of public dashboards answer: each metric that a panel asks for is there, with the labels it selects by.

``panels.txt`` has the panels; ``python -m tests.figures.panels_of FILE`` counts those that a scrape answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.figures.told import Told

PANELS = Path(__file__).with_name("panels.txt")


class Selected(NamedTuple):
    """A metric, and the labels that its lines must have; those that are None with any value."""

    name: str
    labels: Mapping[str, str | None]

    @property
    def promql(self) -> str:
        """The same as Prometheus is asked for it."""
        said = (f'{key}=~".+"' if value is None else f'{key}="{value}"' for key, value in self.labels.items())
        return f"{self.name}{{{','.join(said)}}}"


def dashboards() -> dict[str, list[list[Selected]]]:
    """Return the panels of each dashboard."""
    found: dict[str, list[list[Selected]]] = {}
    panels: list[list[Selected]] = []
    for line in PANELS.read_text().splitlines():
        if line.startswith("["):
            panels = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            panels.append([_selected(word) for word in line.split()])
    return found


def _selected(word: str) -> Selected:
    name, _, labels = word.rstrip("}").partition("{")
    pairs = (each.partition("=") for each in labels.split(",") if each)
    return Selected(name, {key: value if equals else None for key, equals, value in pairs})


def is_in(told: Told) -> Callable[[Selected], bool]:
    """Return what tells whether a scrape has a metric with such labels."""
    series: dict[str, list[dict[str, str]]] = {}
    for name, labels in told:
        series.setdefault(name, []).append(dict(labels))

    def answered(asked: Selected) -> bool:
        if asked.name == "up":  # Prometheus' own
            return True
        return any(
            all(
                key in labels if value is None else labels.get(key) == value
                for key, value in asked.labels.items()
            )
            for labels in series.get(asked.name, ())
        )

    return answered


def counted(answered: Callable[[Selected], bool]) -> dict[str, tuple[int, int]]:
    """Return of each dashboard how many panels answer, and how many there are."""
    return {
        title: (sum(all(map(answered, panel)) for panel in panels), len(panels))
        for title, panels in dashboards().items()
    }


def silent(answered: Callable[[Selected], bool]) -> Iterable[str]:
    """Return what is asked for and not there."""
    asked = {each for panels in dashboards().values() for panel in panels for each in map(_hashable, panel)}
    return sorted(promql for promql, each in asked if not answered(_selected(each)))


def _hashable(each: Selected) -> tuple[str, str]:
    words = ",".join(key if value is None else f"{key}={value}" for key, value in each.labels.items())
    return each.promql, f"{each.name}{{{words}}}"


def main() -> None:
    """Print the counts of a scrape that lies in a file."""
    answered = is_in(Told(Path(sys.argv[1]).read_text()))
    for title, (there, asked) in counted(answered).items():
        print(f"{there:4} of {asked:4}  {title}")
    print(*silent(answered), sep="\n")


if __name__ == "__main__":
    main()
