"""The same figures under the names that other exporters and brokers give them, for dashboards that ask for those.

``/metrics`` has Kafka's names as Strimzi's rules spell them, those of kafka_exporter and Pulsar's. A *dialect* adds
further names; `metrics.dialects` says which. Most are aliases: a table of ours, written once more with other labels.
What takes more than that is made by the handlers, which ask `Dialects.has`. A dialect that is off costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from magnetar.settings.metrics import CONFLUENT, KMINION, LAG_EXPORTER

_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


class Alias(NamedTuple):
    """Another name of a figure."""

    name: str
    kind: str = "untyped"
    labels: Mapping[str, str] = {}
    """Labels that have another name there, too."""
    added: str = ""
    """Labels that each line has besides, as they are written, with a comma at the end."""
    suffix: str = ""
    """As of a `Family`: of parts of summaries."""

    def labelled(self, labels: str) -> str:
        """Return a line's labels as they are written under this name."""
        if not self.labels and not self.added:
            return labels
        inner = _LABEL.sub(lambda each: f"{self.labels.get(each[1], each[1])}={each[2]}", labels[1:-1])
        written = (self.added + inner).removesuffix(",")
        return f"{{{written}}}" if written else ""


def _confluent() -> dict[str, Alias]:
    """Return the names of what the JMX exporter calls ``..._total`` elsewhere, and of some labels."""
    topics, requests = "kafka_server_brokertopicmetrics_", "kafka_network_requestmetrics_"
    found = {
        f"{topics}{each}_total": Alias(f"{topics}{each}persec")
        for each in (
            *("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests"),
            *("failedproducerequests", "failedfetchrequests"),
        )
    }
    for each in ("requests", "errors"):
        found[f"{requests}{each}_total"] = Alias(f"{requests}{each}persec")
    sockets = "kafka_server_socket_server_metrics_connection"
    found[f"{sockets}_count"] = Alias("kafka_server_socketservermetrics_connection_count")
    found[f"{sockets}s"] = Alias("kafka_server_socketservermetrics_connections")
    for ours, theirs in (
        ("kafka_network_socketserver_networkprocessoravgidle_percent", "networkprocessoravgidlepercent"),
        (
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "requesthandleravgidlepercent_oneminuterate",
        ),
        ("kafka_controller_controllerstats_uncleanleaderelections_total", "uncleanleaderelectionspersec"),
    ):
        found[ours] = Alias(f"{ours.rpartition('_')[0].rpartition('_')[0]}_{theirs}")
    return found


def _lag_exporter(cluster: str) -> dict[str, Alias]:
    """Return kafka-lag-exporter's names; each line has the cluster's."""
    name = f'cluster_name="{cluster}",'
    group = {"consumergroup": "group"}
    return {
        "kafka_consumergroup_lag": Alias("kafka_consumergroup_group_lag", "gauge", group, name),
        "kafka_consumergroup_current_offset": Alias("kafka_consumergroup_group_offset", "gauge", group, name),
        "magnetar_consumergroup_lag_seconds": Alias(
            "kafka_consumergroup_group_lag_seconds", "gauge", group, name
        ),
        "magnetar_consumergroup_max_lag_seconds": Alias(
            "kafka_consumergroup_group_max_lag_seconds", "gauge", group, name
        ),
        "magnetar_consumergroup_max_lag": Alias("kafka_consumergroup_group_max_lag", "gauge", group, name),
        "kafka_consumergroup_lag_sum": Alias("kafka_consumergroup_group_topic_sum_lag", "gauge", group, name),
        "kafka_topic_partition_current_offset": Alias("kafka_partition_latest_offset", "gauge", {}, name),
        "kafka_topic_partition_oldest_offset": Alias("kafka_partition_earliest_offset", "gauge", {}, name),
    }


def _kminion() -> dict[str, Alias]:
    """Return kminion's names of what needs no more than another one."""
    labels = {"topic": "topic_name", "partition": "partition_id", "consumergroup": "group_id"}
    group = "kminion_kafka_consumer_group"
    return {
        "kafka_topic_partition_oldest_offset": Alias(
            "kminion_kafka_topic_partition_low_water_mark", "gauge", labels
        ),
        "kafka_topic_partition_current_offset": Alias(
            "kminion_kafka_topic_partition_high_water_mark", "gauge", labels
        ),
        "kafka_broker_info": Alias("kminion_kafka_broker_info", "gauge", {"id": "broker_id"}),
        "kafka_consumergroup_lag": Alias(f"{group}_topic_partition_lag", "gauge", labels),
        "kafka_consumergroup_lag_sum": Alias(f"{group}_topic_lag", "gauge", labels),
        "kafka_consumergroup_current_offset_sum": Alias(f"{group}_topic_offset_sum", "untyped", labels),
        "kafka_consumergroup_members": Alias(f"{group}_members", "gauge", labels),
    }


class Dialects:
    """Those that are on."""

    def __init__(self, names: Iterable[str] = (), cluster: str = "standalone") -> None:
        """``cluster`` is what lines call the cluster where a dialect wants that, escaped."""
        self._names = frozenset(names)
        tables = (
            _confluent() if CONFLUENT in self._names else {},
            _lag_exporter(cluster) if LAG_EXPORTER in self._names else {},
            _kminion() if KMINION in self._names else {},
        )
        self._aliases: dict[str, list[Alias]] = {}
        for table in tables:
            for name, alias in table.items():
                self._aliases.setdefault(name, []).append(alias)

    def has(self, name: str) -> bool:
        """Return whether a dialect is on."""
        return name in self._names

    def of(self, name: str) -> list[Alias]:
        """Return the other names of a figure."""
        return self._aliases.get(name, [])
