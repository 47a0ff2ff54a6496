"""Who may still come to a topic, persistent or not, as its policies have it."""

from __future__ import annotations

from magnetar.pulsar.connection import AnyTopic
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.errors import ConsumerBusy, NotAllowed, ProducerBusy, PulsarError
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.wire.pulsar_pb2 import ServerError


def check_open(topics: PulsarTopics, topic: AnyTopic) -> None:
    """Raise ``PulsarError`` if a topic was closed or deleted while somebody was on the way to it."""
    if not topics.holds(topic):
        raise PulsarError(f"Topic {topic.name} was closed, come again", ServerError.ServiceNotReady)


def check_producer(topic: AnyTopic, name: str) -> None:
    """Raise ``ProducerBusy`` if the topic may not have a producer more; one of the same name is replaced."""
    most = topic.limits.max_producers
    if most and len(topic.producers.by_name.keys() - {name}) >= most:
        raise ProducerBusy(f"Topic '{topic.name}' reached max producers limit")


def check_consumer(topic: AnyTopic, subscription: str) -> None:
    """Raise ``ConsumerBusy`` if the topic or its subscription may not have a consumer more."""
    limits = topic.limits
    each = topic.subscriptions.values()
    if limits.max_consumers and sum(len(one.consumers) for one in each) >= limits.max_consumers:
        raise ConsumerBusy("Topic reached max consumers limit")
    found = topic.subscriptions.get(subscription)
    most = limits.max_consumers_per_subscription
    if most and found is not None and len(found.consumers) >= most:
        raise ConsumerBusy("Subscription reached max consumers limit")


def check_subscribe_rate(topic: AnyTopic, consumer: Consumer, now_s: float) -> None:
    """Raise ``NotAllowed`` if a consumer, known by its host, name and id, subscribes too often."""
    rate = topic.limits.subscribe_rate
    if not rate:
        topic.subscribed.clear()
        return
    key = consumer.sink.address.rpartition(":")[0], consumer.name, consumer.consumer_id
    if len(topic.subscribed) > 1000:
        for old in [
            each for each, (since_s, _) in topic.subscribed.items() if now_s - since_s >= rate.period_s
        ]:
            del topic.subscribed[old]
    since_s, times = topic.subscribed.get(key, (now_s, 0))
    if now_s - since_s >= rate.period_s:
        since_s, times = now_s, 0
    if times >= rate.messages:
        raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")
    topic.subscribed[key] = since_s, times + 1
