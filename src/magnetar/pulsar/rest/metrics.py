"""Topics and subscriptions as Prometheus reads them, under Pulsar's own names and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from magnetar.broker.namespaces import CLUSTER
from magnetar.pulsar.rest.rates import Rates
from magnetar.pulsar.topic import PulsarTopic

_TOPIC = ("cluster", "namespace", "topic")
_SUBSCRIPTION = (*_TOPIC, "subscription")


class TopicCollector(Collector):
    """Looks at partitions when it is asked."""

    def __init__(self, topics: Sequence[PulsarTopic]) -> None:
        self._topics = topics

    def collect(self) -> Iterator[Metric]:
        """Give a family per figure, with a line per partition or subscription."""
        rates = [(topic, Rates.of(topic)) for topic in self._topics]
        for name, text, values in (
            ("pulsar_topics_count", "Partitions in use.", None),
            ("pulsar_rate_in", "Messages stored per second.", [rate.messages_in for _, rate in rates]),
            ("pulsar_throughput_in", "Bytes stored per second.", [rate.bytes_in for _, rate in rates]),
            ("pulsar_rate_out", "Messages sent per second.", [rate.messages_out for _, rate in rates]),
            ("pulsar_throughput_out", "Bytes sent per second.", [rate.bytes_out for _, rate in rates]),
            ("pulsar_storage_size", "Bytes on disk.", [topic.log.size() for topic in self._topics]),
            (
                "pulsar_producers_count",
                "Producers.",
                [len(topic.producers.by_name) for topic in self._topics],
            ),
            (
                "pulsar_subscriptions_count",
                "Subscriptions.",
                [len(topic.subscriptions) for topic in self._topics],
            ),
            (
                "pulsar_consumers_count",
                "Consumers.",
                [sum(len(each.consumers) for each in topic.subscriptions.values()) for topic in self._topics],
            ),
        ):
            if values is None:
                family = GaugeMetricFamily(name, text, labels=("cluster",))
                family.add_metric((CLUSTER,), len(self._topics))
            else:
                family = GaugeMetricFamily(name, text, labels=_TOPIC)
                for topic, value in zip(self._topics, values, strict=True):
                    family.add_metric(_labels(topic), value)
            yield family
        yield from self._subscriptions()

    def _subscriptions(self) -> Iterator[Metric]:
        back_log = GaugeMetricFamily(
            "pulsar_subscription_back_log", "Entries not acknowledged.", labels=_SUBSCRIPTION
        )
        unacked = GaugeMetricFamily(
            "pulsar_subscription_unacked_messages",
            "Messages sent and not acknowledged.",
            labels=_SUBSCRIPTION,
        )
        rate_out = GaugeMetricFamily(
            "pulsar_subscription_msg_rate_out", "Messages sent per second.", labels=_SUBSCRIPTION
        )
        for topic in self._topics:
            for name, subscription in topic.subscriptions.items():
                labels = (*_labels(topic), name)
                back_log.add_metric(labels, subscription.backlog)
                unacked.add_metric(labels, subscription.unacked)
                rate_out.add_metric(labels, Rates.of_subscription(subscription).messages)
        yield from (back_log, unacked, rate_out)


def _labels(topic: PulsarTopic) -> tuple[str, str, str]:
    return CLUSTER, topic.topic.name.namespace_name, topic.name
