"""How the process and the broker itself are, as Prometheus' users know it. Import it only where HTTP is served."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric

from magnetar import __version__
from magnetar.auth import Access
from magnetar.base.background import Background
from magnetar.figures.figures import Family, FigureTable, Source, labelled, summarized, summary
from magnetar.node.broker import Broker

_WRITES = summary(
    "magnetar_journal_write_seconds", "Time that a write of the journal took; quantiles of the last 1024."
)
_WRITTEN = Family("magnetar_journal_written_bytes_total", "counter", "Bytes that the journal made durable.")
_FAILURES = Family(
    "magnetar_background_failures_total", "counter", "Failures of background work since the start."
)
_FAILING = Family("magnetar_background_failing", "gauge", "Failures in a row of what is repeated.")
_DISK = (
    (
        "read_bytes",
        "kafka_server_kafkaserver_linux_disk_read_bytes",
        "Bytes that the process had read from disks.",
    ),
    (
        "write_bytes",
        "kafka_server_kafkaserver_linux_disk_write_bytes",
        "Bytes that the process had written to disks.",
    ),
)


class ProcessFigures:
    """Tables about the process; see `magnetar.figures.figures.Source`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def __call__(self, access: Access | None) -> Iterator[FigureTable | None]:
        broker = self._broker
        labels = labelled(version=__version__, python=platform.python_version())
        yield FigureTable(
            (Family("magnetar_build_info", "gauge", "1; what runs, as labels."),), [(labels, 1)]
        )
        yield _one("magnetar_connections", "Connections of all protocols.", broker.serving.connections.count)
        yield _one(
            "magnetar_open_logs", "Logs of partitions that are open.", len(broker.logs.open_logs.all())
        )
        yield _one(
            "magnetar_client_memory_bytes",
            "What clients make the broker keep.",
            broker.serving.memory.held_bytes,
        )
        yield _one(
            "magnetar_client_memory_limit_bytes", "What that may be.", broker.serving.memory.limit_bytes
        )
        yield _one(
            "magnetar_storage_failed",
            "1 if nothing is made durable until a restart.",
            int(broker.engine.failed is not None),
        )
        failures = Family(
            "magnetar_metrics_failures_total",
            "counter",
            "How often some of these figures were missing, for a fault.",
        )
        yield FigureTable((failures,), [("", broker.figures.failures)])
        yield FigureTable(_WRITES, summarized(broker.engine.flushes))
        yield FigureTable((_WRITTEN,), [("", broker.engine.flushed_bytes)])
        yield from background_figures(broker.background)
        yield from _of_disks()
        for metric in self._registry.collect():
            yield from _as_tables(metric)
            yield None


def background_figures(background: Background) -> Iterator[FigureTable]:
    """Yield how often work has failed since the start, and how often in a row what is repeated."""
    failures = sorted(background.failures.items())
    yield FigureTable((_FAILURES,), [(labelled(work=name), count) for name, count in failures])
    yield FigureTable(
        (_FAILING,), [(labelled(work=name), count) for name, count in sorted(background.failing().items())]
    )


def of_collector(collector: Callable[[], Iterator[Metric]]) -> Source:
    """Return the source that tells what a collector of ``prometheus_client`` does: ``of_collector(it.collect)``."""

    def tables(access: Access | None) -> Iterator[FigureTable | None]:
        for metric in collector():
            yield from _as_tables(metric)

    return tables


def _as_tables(metric: Metric) -> Iterator[FigureTable]:
    # Of a counter the text has the ending in its head, too; of others the endings are those of their parts.
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    kind = "untyped" if metric.type == "unknown" else metric.type
    for sample in metric.samples:
        family = Family(name, kind, metric.documentation, sample.name.removeprefix(name))
        yield FigureTable((family,), [(labelled(**sample.labels), sample.value)])


def _of_disks() -> Iterator[FigureTable]:
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            said = dict(line.split(": ") for line in file.read().splitlines())
    except OSError:  # it is not told everywhere
        return
    for word, name, text in _DISK:
        yield FigureTable((Family(name, "gauge", text),), [("", int(said[word]))])


def _one(name: str, text: str, value: float) -> FigureTable:
    return FigureTable((Family(name, "gauge", text),), [("", value)])
