"""Figures of KoP and kminion that are more than other names of the same figures (`magnetar.figures.dialects`).

KoP: https://github.com/streamnative/kop, ``docs/reference-metrics.md``. Its event manager has no like here, and what it
counts by group is not split by group. kminion: https://github.com/redpanda-data/kminion, ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from magnetar.auth import Access, Right, may
from magnetar.figures.figures import QUANTILES, Family, FigureTable, LogFigures, escaped, labelled
from magnetar.ledger.durations import Durations

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.kinds import AnyGroup
    from magnetar.kafka.server import KafkaServer
    from magnetar.kafka.services import KafkaServices

Groups = Callable[[Access | None], Iterator[tuple[str, "AnyGroup"]]]
"""Yields the groups that may be seen, by the names that figures have for them, escaped."""

_KOP = "kop_server_"
_KOP_TOPICS = (
    Family(f"{_KOP}BYTES_IN", "untyped", "Bytes that came in, by any protocol."),
    Family(f"{_KOP}MESSAGE_IN", "untyped", "Messages that came in, by any protocol."),
    Family(f"{_KOP}BYTES_OUT", "untyped", "Bytes that Kafka consumers fetched."),
    Family(f"{_KOP}MESSAGE_OUT", "untyped", "Messages that Kafka consumers fetched."),
    Family(
        f"{_KOP}PRODUCE_MESSAGE_CONVERSIONS_TIME_NANOS",
        "untyped",
        "How long it took to convert what Kafka producers sent.",
    ),
    Family(
        f"{_KOP}CONSUME_MESSAGE_CONVERSIONS_TIME_NANOS",
        "untyped",
        "How long it took to convert what Kafka consumers fetched.",
    ),
)
_KOP_CHANNELS = (
    Family(f"{_KOP}ALIVE_CHANNEL_COUNT", "untyped", "Connections of Kafka clients."),
    Family(f"{_KOP}ACTIVE_CHANNEL_COUNT", "untyped", "Connections of Kafka clients."),
    Family(f"{_KOP}REQUEST_QUEUE_SIZE", "gauge", "Requests that are under way."),
)
_MAX_QUANTILE = 1.0
_KMINION = "kminion_kafka_"
_KMINION_TOPICS = (
    Family(f"{_KMINION}topic_low_water_mark_sum", "untyped", "First offsets of a topic's partitions."),
    Family(f"{_KMINION}topic_high_water_mark_sum", "untyped", "High watermarks of a topic's partitions."),
    Family(f"{_KMINION}topic_log_dir_size_total_bytes", "gauge", "Bytes on disk of a topic."),
)
_KMINION_INFO = Family(f"{_KMINION}topic_info", "gauge", "1; what a topic is, as labels.")
_KMINION_SIZE = Family(f"{_KMINION}broker_log_dir_size_total_bytes", "gauge", "Bytes on disk of all topics.")
_KMINION_CLUSTER = Family(f"{_KMINION}cluster_info", "gauge", "1; what the cluster is, as labels.")
_KMINION_GROUP = Family(f"{_KMINION}consumer_group_info", "gauge", "1; what a group is, as labels.")


def kop_tables(
    services: KafkaServices, server: KafkaServer, access: Access | None
) -> Iterator[FigureTable | None]:
    """Yield KoP's tables; see `magnetar.figures.figures.Source`."""
    broker = services.broker
    settings, rows = broker.settings.metrics, list[tuple[Any, ...]]()
    if settings.expose_topic_level_metrics_in_prometheus:
        for name, index, figures in _partitions(services, access):
            if figures is not None and len(rows) < settings.metrics_max_lines_per_figure:
                counted = (figures.bytes_in, figures.messages_in, figures.bytes_out, figures.messages_out)
                took = (figures.converted_in_ns, figures.converted_out_ns)
                rows.append((f'{{topic="{name}",partition="{index}"}}', *counted, *took))
            yield None
    yield FigureTable(_KOP_TOPICS, rows)
    connections = list(server.connections)
    under_way = sum(each.conversation.under_way for each in connections)
    yield FigureTable(_KOP_CHANNELS, [("", len(connections), len(connections), under_way)])
    latency, parts = f"{_KOP}REQUEST_LATENCY", list[tuple[Any, ...]]()
    for each in list(services.requests.values()):
        each.count = sum(each.versions)
        parts += _summarized(each, request=each.name, success="true")
        failed = sum(each.errors.values())
        parts.append((labelled(request=each.name, success="false"), None, failed, None))
        yield None
    yield FigureTable(
        _summary(latency, "From when a request had come until its answer was ready, ms."), parts
    )
    yield FigureTable(
        _summary(f"{_KOP}MESSAGE_PUBLISH", "How long it took to make appends durable, ms."),
        _summarized(broker.engine.flushes, success="true"),
    )
    yield FigureTable(
        _summary(f"{_KOP}MESSAGE_READ", "How long it took to read a partition for a consumer, ms."),
        _summarized(services.reads or Durations(), success="true"),
    )


def kminion_tables(
    services: KafkaServices, groups: Groups, access: Access | None
) -> Iterator[FigureTable | None]:
    """Yield the tables of kminion that need more than another name; see `magnetar.figures.figures.Source`."""
    broker = services.broker
    settings, all_bytes = broker.settings.metrics, 0
    in_full, most = settings.expose_topic_level_metrics_in_prometheus, settings.metrics_max_lines_per_figure
    sums: list[tuple[Any, ...]] = []
    infos: list[tuple[Any, ...]] = []
    for topic in broker.topics():
        low = high = size = 0
        for index in range(topic.partitions):
            figures = broker.logs.open_logs.figures(topic, index)
            bounds = None if figures is None else figures.bounds
            if bounds is not None:
                low, high = low + bounds.log_start_offset, high + bounds.high_watermark
                size += bounds.size
            yield None
        all_bytes += size
        if in_full and len(sums) < most and may(access, Right.see, topic.name):
            sums.append((labelled(topic_name=topic.kafka_name), low, high, size))
            policy = "compact" if topic.config.compacted else "delete"
            of_it = {"partition_count": str(topic.partitions), "replication_factor": "1"}
            infos.append((labelled(topic_name=topic.kafka_name, **of_it, cleanup_policy=policy), 1))
        yield None
    yield FigureTable(_KMINION_TOPICS, sums)
    yield FigureTable((_KMINION_INFO,), infos)
    ownership = broker.cluster.ownership
    here = {"broker_id": str(ownership.node_id)}
    yield FigureTable((_KMINION_SIZE,), [(labelled(**here), all_bytes)])
    cluster = {"cluster_id": ownership.cluster, "broker_count": str(len(list(ownership.brokers())))}
    leader = str(ownership.leader())
    yield FigureTable((_KMINION_CLUSTER,), [(labelled(**cluster, controller_id=leader), 1)])
    found: list[tuple[Any, ...]] = []
    for name, group in groups(access):
        if len(found) < most:
            said = (
                f'group_id="{name}",state="{escaped(str(group.state))}",coordinator_id="{ownership.node_id}"'
            )
            found.append((f"{{{said}}}", 1))
        yield None
    yield FigureTable((_KMINION_GROUP,), found)


def _partitions(
    services: KafkaServices, access: Access | None
) -> Iterator[tuple[str, int, LogFigures | None]]:
    """Yield a topic's name, escaped, a partition and what was counted of it; None where that may not be seen."""
    broker = services.broker
    for topic in broker.topics():
        seen = may(access, Right.see, topic.name)
        name = escaped(topic.kafka_name)
        for index in range(topic.partitions):
            yield name, index, broker.logs.open_logs.figures(topic, index) if seen else None


def _summary(name: str, text: str) -> tuple[Family, Family, Family]:
    return (
        Family(name, "summary", text),
        Family(name, "summary", text, "_count"),
        Family(name, "summary", text, "_sum"),
    )


def _summarized(durations: Durations, **labels: str) -> list[tuple[Any, ...]]:
    """Return the rows of a `_summary` in ms, the longest of the last times too, as KoP has it."""
    fractions = (*QUANTILES, _MAX_QUANTILE)
    rows: list[tuple[Any, ...]] = [
        (labelled(**labels, quantile=str(fraction)), round(value * 1000, 6), None, None)
        for fraction, value in zip(fractions, durations.quantiles(fractions), strict=False)
    ]
    return [*rows, (labelled(**labels), None, durations.count, round(durations.seconds * 1000, 6))]
