"""The settings of what ``/metrics`` tells: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.setting import setting
from magnetar.broker.values import Kind, at_least


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What /metrics tells of, and how much."""

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
        "Partitions, subscriptions, and partitions of consumer groups that /metrics tells of one by one, of each so "
        "many; the rest counts in sums, and magnetar_metrics_left_out tells how many those are.",
        rule=at_least(0),
    )
