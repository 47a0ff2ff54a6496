"""Who may still come to a topic, persistent or not, as its policies have it."""

from __future__ import annotations

from magnetar.auth.rights import Right
from magnetar.pulsar.deduplication import CURSOR as DEDUPLICATION_CURSOR
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.errors import (
    ConsumerBusy,
    IncompatibleSchema,
    NotAllowed,
    NotAuthorized,
    ProducerBusy,
    PulsarError,
    SubscriptionNotFound,
)
from magnetar.pulsar.schemas import NO_SCHEMA
from magnetar.pulsar.services import PulsarServices
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import AnyTopic, PulsarTopics
from magnetar.topics.names import TopicName
from magnetar.topics.policies import NamespacePolicies
from magnetar.wire.pulsar.pulsar_pb2 import Schema, ServerError

_REPLICATORS = "pulsar.repl."
"""How the names of Pulsar's own subscriptions for other clusters begin."""


def check_open(topics: PulsarTopics, topic: AnyTopic) -> None:
    """Raise ``PulsarError`` if a topic was closed or deleted while somebody was on the way to it."""
    if not topics.holds(topic):
        raise PulsarError(f"Topic {topic.name} was closed, come again", ServerError.ServiceNotReady)


def check_encryption(policies: NamespacePolicies, topic: AnyTopic, *, is_encrypted: bool) -> None:
    """Raise ``PulsarError`` for a producer in the clear where the namespace requires encryption."""
    if policies.requires_encryption and not is_encrypted:
        raise PulsarError(f"Encryption is required in {topic.name}", ServerError.MetadataError)


async def check_schema(
    services: PulsarServices, topic: TopicName, schema: Schema | None, *, produces: bool
) -> None:
    """Raise ``IncompatibleSchema`` for a producer without a schema where the topic's is enforced, or for one that only
    an administrator may bring."""
    namespaces = services.broker.namespaces
    if topic.namespace_name not in namespaces:
        return
    policies = namespaces.policies(topic.namespace_name)
    has_none = schema is None or schema.type in NO_SCHEMA
    if has_none or schema is None:
        enforced = produces and services.topics.policies.enforces_schemas(topic)
        if enforced and await services.schemas.latest(topic) is not None:
            raise IncompatibleSchema(
                "Producers cannot connect or send message without a schema to topics with a schema"
            )
    elif (
        policies.keeps_schemas
        and (produces or await services.schemas.latest(topic) is None)
        and await services.schemas.find(topic, schema) is None
    ):
        raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")


def check_subscription(
    services: PulsarServices, topic: AnyTopic, name: str, role: str, *, durable: bool
) -> None:
    """Raise ``PulsarError`` for a subscription that is not a client's to have, or may not be made by asking for it."""
    if name == DEDUPLICATION_CURSOR or name.startswith(_REPLICATORS):
        raise PulsarError("Subscription with reserved subscription name attempted", ServerError.ProducerBusy)
    broker = services.broker
    policies = broker.topic_policies(topic.topic)
    if broker.security.authorization.enabled and policies.prefixes_subscriptions:
        check_prefix(services, topic.topic.name, name, role)
    is_new = isinstance(topic, PulsarTopic) and name not in topic.subscriptions
    if durable and is_new and not services.topics.policies.allows_auto_subscriptions(topic.topic):
        raise SubscriptionNotFound("Subscription does not exist")


def check_prefix(services: PulsarServices, topic: TopicName, name: str, role: str) -> None:
    """Raise ``NotAuthorized`` for a subscription that does not begin with the role's name; super users are free."""
    authorization = services.broker.security.authorization
    if not name.startswith(role) and not authorization.may(role, Right.operate):
        raise NotAuthorized(
            f"Failed to create consumer - The subscription name needs to be prefixed by the authentication role, "
            f"like {role}-xxxx for topic: {topic}"
        )


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
