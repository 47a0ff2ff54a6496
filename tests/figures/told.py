"""What a broker tells Prometheus, read back."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.process import BrokerProcess

Labels = frozenset[tuple[str, str]]


class Told(dict[tuple[str, Labels], float]):
    """One scrape: values by name and labels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self, f"{key} is told twice"
                self[key] = sample.value

    def of(self, name: str, **labels: str) -> float:
        """Return one value; all labels count."""
        return self[name, frozenset(labels.items())]

    def all(self, name: str, **labels: str) -> list[float]:
        """Return the values of all lines that have these labels, and maybe others."""
        wanted = set(labels.items())
        return [value for (found, those), value in self.items() if found == name and wanted <= those]

    def names(self) -> set[str]:
        """Return what families there are, with lines or without."""
        return {line.split()[2] for line in self.text.splitlines() if line.startswith("# TYPE ")}

    def series(self) -> set[str]:
        """Return what may be asked for: families, and of summaries the parts besides."""
        return self.names() | {name for name, _ in self}

    def labelled(self, label: str, names: Iterable[str] = ()) -> set[str]:
        """Return the values that a label has, of all families or of some."""
        wanted = set(names)
        return {
            value
            for name, labels in self
            for key, value in labels
            if key == label and (not wanted or name in wanted)
        }


def url(broker: BrokerProcess, served: str = "http") -> str:
    return f"http://{broker.served[served][0]}"


def scraped(broker: BrokerProcess, served: str = "http", **headers: str) -> Told:
    """Ask for all there is."""
    answer = httpx.get(f"{url(broker, served)}/metrics", headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Told(answer.text)
