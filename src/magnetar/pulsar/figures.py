"""What Pulsar's users know of a broker, under the names that they know it by.

A partition has its line whichever protocol it is used by; topics, partitions and subscriptions are labelled as Pulsar
does (``cluster``, ``namespace``, ``topic``, ``subscription``). ``docs/metrics.md`` tells of each.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from magnetar import __version__
from magnetar.auth import Access, Right, may
from magnetar.base.slices import sliced
from magnetar.figures.figures import Bounds, Family, FigureTable, LogFigures, escaped, labelled
from magnetar.ledger.cursors.cursor import Cursor
from magnetar.ledger.port import ManagedLedger, wall_clock_ms
from magnetar.logs.append_times import AppendTimes, Read, appended_ms
from magnetar.pulsar.dispatch.base import AnySubscription
from magnetar.pulsar.dispatch.non_persistent import NonPersistentSubscription
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.non_persistent import NonPersistentTopic
from magnetar.pulsar.rates import Meter, Rates
from magnetar.pulsar.topic import PulsarTopic

if TYPE_CHECKING:
    from magnetar.pulsar.server import PulsarServer
    from magnetar.pulsar.services import PulsarServices

# Where a name ends as parts of summaries do, linters object to its being a gauge, which it is for Pulsar.
_OF_TOPICS = (
    Family("pulsar_rate_in", "gauge", "Messages that came in per second."),
    Family("pulsar_throughput_in", "gauge", "Bytes that came in per second."),
    Family("pulsar_rate_out", "gauge", "Messages that went out per second."),
    Family("pulsar_throughput_out", "gauge", "Bytes that went out per second."),
    Family("pulsar_storage_size", "gauge", "Bytes on disk."),
    Family("pulsar_producers_count", "untyped", "Pulsar's producers."),
    Family("pulsar_subscriptions_count", "untyped", "Subscriptions."),
    Family("pulsar_consumers_count", "untyped", "Pulsar's consumers."),
    Family("pulsar_msg_backlog", "gauge", "Entries that subscriptions have not acknowledged."),
    Family("pulsar_average_msg_size", "gauge", "Bytes of a message that came in, of late."),
    Family("pulsar_storage_logical_size", "gauge", "Bytes on disk, without copies."),
    Family("pulsar_in_messages_total", "counter", "Messages that came in, by any protocol."),
    Family("pulsar_in_bytes_total", "counter", "Bytes that came in, by any protocol."),
    Family("pulsar_storage_offloaded_size", "gauge", "Bytes in tiered storage."),
)
_LAG = Family(
    "magnetar_subscription_lag_seconds",
    "gauge",
    "How long ago the oldest entry was appended that a subscription has not acknowledged; 0 if there is none.",
)
_OF_SUBSCRIPTIONS = (
    Family("pulsar_subscription_back_log", "gauge", "Entries not acknowledged."),
    Family("pulsar_subscription_back_log_no_delayed", "gauge", "Entries not acknowledged that may be sent."),
    Family("pulsar_subscription_delayed", "gauge", "Entries that wait for their time."),
    Family("pulsar_subscription_unacked_messages", "gauge", "Messages sent and not acknowledged."),
    Family("pulsar_subscription_blocked_on_unacked_messages", "gauge", "1 if too many of these hold it up."),
    Family("pulsar_subscription_consumers_count", "untyped", "Consumers."),
    Family("pulsar_subscription_msg_rate_out", "gauge", "Messages sent per second."),
    Family("pulsar_subscription_msg_throughput_out", "gauge", "Bytes sent per second."),
    Family("pulsar_subscription_msg_rate_redeliver", "gauge", "Entries sent again per second."),
    Family("pulsar_subscription_msg_ack_rate", "gauge", "Acknowledgements per second."),
    Family("pulsar_subscription_msg_rate_expired", "gauge", "Entries that were too old, per second."),
    Family("pulsar_subscription_total_msg_expired", "gauge", "Entries that were too old."),
    Family(
        "pulsar_subscription_msg_drop_rate",
        "gauge",
        "Messages per second that nobody had room for, of topics not persistent.",
    ),
    Family("pulsar_out_messages_total", "counter", "Messages that a subscription was sent."),
    Family("pulsar_out_bytes_total", "counter", "Bytes that a subscription was sent."),
)
_TOPICS = Family("pulsar_topics_count", "untyped", "Partitions in use.")
_OF_BROKER = (
    Family("pulsar_broker_topics_count", "untyped", "Partitions in use."),
    Family("pulsar_broker_subscriptions_count", "untyped", "Subscriptions."),
    Family("pulsar_broker_producers_count", "untyped", "Pulsar's producers."),
    Family("pulsar_broker_consumers_count", "untyped", "Pulsar's consumers."),
    Family("pulsar_broker_rate_in", "gauge", "Messages that came in per second."),
    Family("pulsar_broker_throughput_in", "gauge", "Bytes that came in per second."),
    Family("pulsar_broker_rate_out", "gauge", "Messages that went out per second."),
    Family("pulsar_broker_throughput_out", "gauge", "Bytes that went out per second."),
    Family("pulsar_broker_storage_size", "gauge", "Bytes on disk."),
    Family("pulsar_broker_storage_logical_size", "gauge", "Bytes on disk, without copies."),
    Family("pulsar_broker_msg_backlog", "gauge", "Entries that subscriptions have not acknowledged."),
)
_CONNECTIONS = (
    Family("pulsar_active_connections", "gauge", "Connections of Pulsar's clients."),
    Family("pulsar_connection_created_total_count", "untyped", "Connections that came."),
    Family("pulsar_connection_closed_total_count", "untyped", "Connections that ended."),
)
_VERSION = Family("pulsar_version_info", "gauge", "1; the version, as a label.")
_LEFT_OUT = Family("magnetar_metrics_left_out", "gauge", "Series that are not shown individually.")


class _Sums:
    """Of many partitions together, in the order of `_OF_TOPICS`; the average is made of the others."""

    def __init__(self) -> None:
        self.values: list[float] = [0] * len(_OF_TOPICS)
        self.partitions = 0

    def add(self, values: Sequence[float]) -> None:
        self.partitions += 1
        for at, value in enumerate(values):
            self.values[at] += value

    def row(self, labels: str) -> tuple[Any, ...]:
        messages, size = self.values[:2]
        values = [*self.values]
        values[9] = round(size / messages, 3) if messages else 0
        return (labels, *values)


_OfPartition = tuple[
    str | None, str, tuple[float, ...], Sequence[AnySubscription], LogFigures | None, PulsarTopic | None
]
"""Its namespace, None if it has no line; name, values of `_OF_TOPICS`, subscriptions; what was counted, and
the topic while Pulsar clients have it open."""
_OTHER: _OfPartition = (None, "", (), (), None, None)


def _reading(log: ManagedLedger, cursor: Cursor) -> Read:
    async def read() -> int | None:
        return await appended_ms(log, await cursor.start_offset())

    return read


class PulsarFigures:
    """Tables of what Pulsar's users know; see `magnetar.figures.figures.Source`."""

    def __init__(self, services: PulsarServices, server: PulsarServer) -> None:
        self._services = services
        self._broker = services.broker
        self._server = server
        self._times = AppendTimes()

    async def look(self) -> None:
        """Find out how old the oldest entries are that subscriptions have not acknowledged."""
        most = self._broker.settings.metrics.metrics_max_lines_per_figure
        wanted: dict[Hashable, Read] = {}
        async for topic in sliced(iter(self._services.topics.all_open())):
            for each in list(topic.subscriptions.values()):
                if each.backlog and len(wanted) < most:
                    mark = each.cursor.mark_delete_position
                    wanted[topic.log.name, mark] = _reading(topic.log, each.cursor)
        await self._times.look(wanted)

    def _lag(self, topic: PulsarTopic, subscription: Subscription, now_ms: int) -> float | None:
        if not subscription.backlog:
            return 0.0
        at_ms = self._times.of((topic.log.name, subscription.cursor.mark_delete_position))
        return None if at_ms is None else max(now_ms - at_ms, 0) / 1000

    def __call__(self, access: Access | None) -> Iterator[FigureTable | None]:
        settings = self._broker.settings.metrics
        in_full, most = (
            settings.expose_topic_level_metrics_in_prometheus,
            settings.metrics_max_lines_per_figure,
        )
        cluster = self._broker.cluster.ownership.cluster
        within = f'cluster="{escaped(cluster)}"'
        topics: list[tuple[Any, ...]] = []
        subscriptions: list[tuple[Any, ...]] = []
        namespaces: dict[str, _Sums] = {}
        left_topics = left_subscriptions = 0
        buckets: list[tuple[Any, ...]] = []
        lags: list[tuple[Any, ...]] = []
        now_ms, now_s = wall_clock_ms(), time.monotonic()
        for namespace, name, values, each, figures, opened in self._partitions(access):
            if namespace is None:
                yield None
                continue
            namespaces.setdefault(namespace, _Sums()).add(values)
            labels = f'{within},namespace="{namespace}",topic="{escaped(name)}"'
            if in_full and len(topics) < most:
                topics.append((f"{{{labels}}}", *values))
                if figures is not None and figures.buckets is not None:
                    buckets.append((f"{{{labels}}}", *figures.buckets.last_minute(now_s)))
            else:
                left_topics += in_full
            for said in each:
                if in_full and len(subscriptions) < most:
                    of_it = f'{{{labels},subscription="{escaped(said.name)}"}}'
                    subscriptions.append((of_it, *_of_subscription(said)))
                    if opened is not None and isinstance(said, Subscription):
                        lags.append((of_it, self._lag(opened, said, now_ms)))
                else:
                    left_subscriptions += in_full
                yield None
            yield None
        if not in_full:
            topics = [
                sums.row(labelled(cluster=cluster, namespace=name)) for name, sums in namespaces.items()
            ]
        yield FigureTable(_OF_TOPICS, topics)
        yield FigureTable(_OF_SUBSCRIPTIONS, subscriptions)
        yield FigureTable((_LAG,), lags)
        if buckets:
            from magnetar.pulsar.bucket_families import FAMILIES

            yield FigureTable(FAMILIES, buckets)
        # As Pulsar does, one line more, so that a broker without topics is seen.
        counts = {name: sums.partitions for name, sums in namespaces.items()}
        yield FigureTable(
            (_TOPICS,),
            [
                (labelled(cluster=cluster), 0),
                *((labelled(cluster=cluster, namespace=name), count) for name, count in counts.items()),
            ],
        )
        left_out = (("topics", left_topics), ("subscriptions", left_subscriptions))
        yield FigureTable((_LEFT_OUT,), [(labelled(what=what), count) for what, count in left_out])
        yield from self._of_broker(namespaces)

    def _partitions(self, access: Access | None) -> Iterator[_OfPartition]:
        """Yield what is known of each partition in use, and of others that there are such."""
        logs, topics = self._broker.logs.open_logs, self._services.topics
        for topic in self._broker.topics():
            if topic.internal or not may(access, Right.see, topic.name):
                yield _OTHER
                continue
            for index in range(topic.partitions):
                figures = logs.figures(topic, index)
                bounds = None if figures is None else figures.bounds
                if figures is None or bounds is None:
                    yield _OTHER
                    continue
                opened = topics.opened(topic, index)
                name = str(topic.name) + (f"-partition-{index}" if topic.partitioned else "")
                yield (
                    topic.name.namespace_name,
                    name,
                    _of_log(figures, bounds, opened),
                    list(opened.subscriptions.values()) if opened is not None else (),
                    figures,
                    opened,
                )
        for fleeting in topics.non_persistent.all_open():
            if may(access, Right.see, fleeting.topic.name):
                namespace = fleeting.topic.name.namespace_name
                subscriptions = list(fleeting.subscriptions.values())
                yield namespace, fleeting.name, _of_fleeting(fleeting), subscriptions, None, None

    def _of_broker(self, namespaces: dict[str, _Sums]) -> Iterator[FigureTable | None]:
        cluster = self._broker.cluster.ownership.cluster
        everything = _Sums()
        for sums in namespaces.values():
            everything.add(sums.values)
        rate_in, bytes_in, rate_out, bytes_out, size, producers, subscriptions, consumers, backlog, *_ = (
            everything.values
        )
        partitions = sum(sums.partitions for sums in namespaces.values())
        row = (
            labelled(cluster=cluster),
            *(partitions, subscriptions, producers, consumers),
            *(rate_in, bytes_in, rate_out, bytes_out),
            *(size, size, backlog),
        )
        yield FigureTable(_OF_BROKER, [row])
        server = self._server
        broker = labelled(cluster=cluster, broker=str(self._broker.cluster.ownership.node_id))
        now = len(server.connections)
        yield FigureTable(_CONNECTIONS, [(broker, now, server.came, server.came - now)])
        yield FigureTable((_VERSION,), [(labelled(cluster=cluster, version=__version__, commit=""), 1)])


def _of_log(figures: LogFigures, bounds: Bounds, topic: PulsarTopic | None) -> tuple[float, ...]:
    """Return a partition's figures in the order of `_OF_TOPICS`."""
    messages_out, bytes_out = figures.messages_out, figures.bytes_out
    producers = subscriptions = consumers = backlog = 0
    if topic is not None:
        producers, subscriptions = len(topic.producers.by_name), len(topic.subscriptions)
        for each in topic.subscriptions.values():
            consumers += len(each.consumers)
            backlog += each.backlog
            messages_out += each.delivered_messages
            bytes_out += each.delivered_bytes
    counters = (figures.messages_in, figures.bytes_in, messages_out, bytes_out)
    meter = figures.looks
    if meter is None:
        meter = figures.looks = Meter(counters)
    rate_in, throughput_in, rate_out, throughput_out = [round(each, 3) for each in meter.per_second(counters)]
    average = round(throughput_in / rate_in, 3) if rate_in else 0
    return (
        *(rate_in, throughput_in, rate_out, throughput_out),
        *(bounds.size, producers, subscriptions, consumers, backlog, average, bounds.size),
        *(figures.messages_in, figures.bytes_in, bounds.offloaded),
    )


def _of_fleeting(topic: NonPersistentTopic) -> tuple[float, ...]:
    counted = Rates.of_fleeting(topic)
    rates = [round(each, 3) for each in counted.per_second[:4]]
    average = round(rates[1] / rates[0], 3) if rates[0] else 0
    consumers = sum(len(each.consumers) for each in topic.subscriptions.values())
    return (
        *rates,
        *(0, len(topic.producers.by_name), len(topic.subscriptions), consumers, 0, average, 0),
        *(topic.messages_in, topic.bytes_in, 0),
    )


def _of_subscription(subscription: AnySubscription) -> tuple[float | None, ...]:
    """Return a subscription's figures in the order of `_OF_SUBSCRIPTIONS`."""
    consumers = len(subscription.consumers)
    if isinstance(subscription, NonPersistentSubscription):
        sent = Rates.of_fleeting_subscription(subscription).per_second
        return (
            *(0, 0, 0, 0, 0, consumers),
            *(round(sent[0], 3), round(sent[1], 3), 0, 0, 0, 0, round(sent[2], 3)),
            *(subscription.delivered_messages, subscription.delivered_bytes),
        )
    assert isinstance(subscription, Subscription)
    rates = Rates.of_subscription(subscription)
    backlog, delayed = subscription.backlog, subscription.delayed
    return (
        *(backlog, backlog - delayed, delayed, subscription.unacked, int(subscription.is_blocked), consumers),
        *(round(rates.messages, 3), round(rates.bytes, 3), round(rates.redelivered, 3)),
        *(round(rates.acknowledged, 3), round(rates.expired, 3), subscription.expired, None),
        *(rates.total_messages, rates.total_bytes),
    )
