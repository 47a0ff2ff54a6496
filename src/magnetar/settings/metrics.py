"""The settings of what ``/metrics`` tells: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import setting
from magnetar.base.values import Kind, at_least, one_of

CONFLUENT = "confluent"
"""Names as Confluent's jmx-monitoring-stacks have them."""
KOP = "kop"
"""``kop_server_...``, as of Kafka on Pulsar."""
LAG_EXPORTER = "kafka-lag-exporter"
KMINION = "kminion"
PULSAR_BUCKETS = "pulsar-buckets"
"""Pulsar's counts of the last minute, by write latency and entry size, for each partition."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Metrics."""

    expose_topic_level_metrics_in_prometheus: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether /metrics has lines for each topic, partition and subscription; without them Pulsar's figures are "
        "those of namespaces, and Kafka's those of the broker.",
        pulsar=("exposeTopicLevelMetricsInPrometheus",),
    )
    metrics_max_lines_per_figure: int = setting(
        20_000,
        Kind.INT,
        "Partitions, subscriptions, and partitions of consumer groups that /metrics shows individually, of each "
        "at most so many; the others count in sums, and magnetar_metrics_left_out is their number.",
        rule=at_least(0),
    )
    metrics_dialects: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Further names under which /metrics has its figures, for dashboards that were made for others: confluent, kop, "
        "kafka-lag-exporter, kminion; and pulsar-buckets, which counts entries by write latency and size.",
        rule=one_of(CONFLUENT, KOP, LAG_EXPORTER, KMINION, PULSAR_BUCKETS),
    )
