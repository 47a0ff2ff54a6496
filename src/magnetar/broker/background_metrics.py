"""How the broker itself is, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from magnetar.broker.background import Background


class BackgroundCollector(Collector):
    """Looks at background work when it is asked."""

    def __init__(self, background: Background) -> None:
        self._background = background

    def collect(self) -> Iterator[Metric]:
        """Yield how often work has failed since the start, and how often in a row what is repeated."""
        failures = CounterMetricFamily(
            "magnetar_background_failures", "Failures of background work since the start.", labels=("work",)
        )
        for name, count in sorted(self._background.failures.items()):
            failures.add_metric((name,), count)
        failing = GaugeMetricFamily(
            "magnetar_background_failing", "Failures in a row of what is repeated.", labels=("work",)
        )
        for name, count in sorted(self._background.failing().items()):
            failing.add_metric((name,), count)
        yield failures
        yield failing
