"""Topics and subscriptions as Prometheus reads them, under Pulsar's own names and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from magnetar.broker.namespaces import CLUSTER
from magnetar.pulsar.non_persistent import NonPersistentTopic
from magnetar.pulsar.rest.rates import Rates
from magnetar.pulsar.topic import PulsarTopic

_TOPIC = ("cluster", "namespace", "topic")
_SUBSCRIPTION = (*_TOPIC, "subscription")
_OF_TOPICS = {
    "pulsar_rate_in": "Messages that came per second.",
    "pulsar_throughput_in": "Bytes that came per second.",
    "pulsar_rate_out": "Messages sent per second.",
    "pulsar_throughput_out": "Bytes sent per second.",
    "pulsar_storage_size": "Bytes on disk.",
    "pulsar_producers_count": "Producers.",
    "pulsar_subscriptions_count": "Subscriptions.",
    "pulsar_consumers_count": "Consumers.",
}
_OF_SUBSCRIPTIONS = {
    "pulsar_subscription_back_log": "Entries not acknowledged.",
    "pulsar_subscription_unacked_messages": "Messages sent and not acknowledged.",
    "pulsar_subscription_msg_rate_out": "Messages sent per second.",
    "pulsar_subscription_msg_drop_rate": "Messages per second that nobody had room for, of topics not persistent.",
}


class TopicCollector(Collector):
    """Looks at partitions when it is asked."""

    def __init__(self, topics: Sequence[PulsarTopic], fleeting: Sequence[NonPersistentTopic] = ()) -> None:
        self._topics = topics
        self._fleeting = fleeting

    def collect(self) -> Iterator[Metric]:
        """Yield a family per figure, with a line per partition or subscription."""
        count = GaugeMetricFamily("pulsar_topics_count", "Partitions in use.", labels=("cluster",))
        count.add_metric((CLUSTER,), len(self._topics) + len(self._fleeting))
        families = {
            name: GaugeMetricFamily(name, text, labels=_TOPIC) for name, text in _OF_TOPICS.items()
        } | {
            name: GaugeMetricFamily(name, text, labels=_SUBSCRIPTION)
            for name, text in _OF_SUBSCRIPTIONS.items()
        }
        for labels, figures in self._figures():
            for name, value in figures.items():
                families[name].add_metric(labels, value)
        yield count
        yield from families.values()

    def _figures(self) -> Iterator[tuple[tuple[str, ...], dict[str, float]]]:
        for topic in self._topics:
            rate = Rates.of(topic)
            yield _labels(topic), _common(topic, rate[:4], topic.log.size())
            for name, subscription in topic.subscriptions.items():
                yield (
                    (*_labels(topic), name),
                    {
                        "pulsar_subscription_back_log": subscription.backlog,
                        "pulsar_subscription_unacked_messages": subscription.unacked,
                        "pulsar_subscription_msg_rate_out": Rates.of_subscription(subscription).messages,
                    },
                )
        for fleeting in self._fleeting:
            rates = Rates.of_fleeting(fleeting)
            yield _labels(fleeting), _common(fleeting, rates.per_second[:4], 0)
            for name, each in fleeting.subscriptions.items():
                sent = Rates.of_fleeting_subscription(each).per_second
                yield (
                    (*_labels(fleeting), name),
                    {
                        "pulsar_subscription_back_log": 0,
                        "pulsar_subscription_unacked_messages": 0,
                        "pulsar_subscription_msg_rate_out": sent[0],
                        "pulsar_subscription_msg_drop_rate": sent[2],
                    },
                )


def _common(topic: PulsarTopic | NonPersistentTopic, rates: Sequence[float], size: int) -> dict[str, float]:
    counts = (
        size,
        len(topic.producers.by_name),
        len(topic.subscriptions),
        sum(len(each.consumers) for each in topic.subscriptions.values()),
    )
    return dict(zip(_OF_TOPICS, (*rates, *counts), strict=True))


def _labels(topic: PulsarTopic | NonPersistentTopic) -> tuple[str, str, str]:
    return CLUSTER, topic.topic.name.namespace_name, topic.name
