"""What DescribeConfigs tells of a subscription of client metrics."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.base.values import Kind
from magnetar.kafka.client_metrics.names import DEFAULTS, INTERVAL_MS, MATCH, METRICS
from magnetar.kafka.configs.changes import Known
from magnetar.kafka.configs.entries import ConfigEntry
from magnetar.topics.effective import ConfigSource, Origin


def client_metrics_entries(own: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all that can be configured for a subscription of client metrics; ``own`` is what is set for it."""
    return [
        ConfigEntry(
            name,
            [
                Origin(name, own[name], ConfigSource.CLIENT_METRICS)  # Kafka names no default beside it
                if name in own
                else Origin(name, default, ConfigSource.DEFAULT)
            ],
            Kind.INT if name == INTERVAL_MS else Kind.LIST,
            False,
            _OF_CLIENT_METRICS[name],
        )
        for name, default in DEFAULTS.items()
    ]


def known_of_client_metrics(own: Mapping[str, str], key: str) -> Known:
    """Return what is known of a configuration of client metrics, whether there is such a one or not."""
    return Known(Kind.INT if key == INTERVAL_MS else Kind.LIST, own.get(key, DEFAULTS.get(key)))


_OF_CLIENT_METRICS = {
    INTERVAL_MS: "How often clients push.",
    MATCH: "Which clients: label=expression, with commas between; all where it is empty.",
    METRICS: "Which metrics: beginnings of their names, with commas between; * for all.",
}
