"""The settings that bound what Pulsar's clients may do, where no policy says it."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, at_least, one_of
from magnetar.topics.limits import QUOTA_POLICIES

_POLICY = "A policy of the namespace or the topic comes first."


def _bound(pulsar: str, doc: str, *, size: bool = False) -> int:
    """Declare a number, or with ``size`` a size, that policies come before; 0 is no bound."""
    return setting(
        0,
        Kind.LONG if size else Kind.INT,
        f"{doc}; 0 for no bound. {_POLICY}",
        unit="bytes" if size else "",
        rule=at_least(0),
        dynamic=True,
        pulsar=(pulsar,),
    )


@dataclass(frozen=True, slots=True)
class PulsarLimitSettings(HandlerSettings):
    """Limits for Pulsar clients; 0 is no bound."""

    max_producers_per_topic: int = _bound(
        "maxProducersPerTopic", "Producers of Pulsar that one topic (one partition) may have"
    )
    max_consumers_per_topic: int = _bound(
        "maxConsumersPerTopic", "Consumers of Pulsar that one topic (one partition) may have"
    )
    max_consumers_per_subscription: int = _bound(
        "maxConsumersPerSubscription", "Consumers that one subscription of one topic (one partition) may have"
    )
    max_subscriptions_per_topic: int = _bound(
        "maxSubscriptionsPerTopic",
        "Subscriptions that one topic (one partition) may have, not counting Kafka groups",
    )
    max_publish_rate_per_topic_in_messages: int = _bound(
        "maxPublishRatePerTopicInMessages",
        "Messages that Pulsar producers may send to a topic (a partition) in a second",
    )
    max_publish_rate_per_topic_in_bytes: int = _bound(
        "maxPublishRatePerTopicInBytes",
        "Bytes that Pulsar producers may send to one topic (one partition) in a second",
        size=True,
    )
    dispatch_throttling_rate_per_topic_in_msg: int = _bound(
        "dispatchThrottlingRatePerTopicInMsg",
        "Messages that all consumers of one topic (one partition) are sent in a second",
    )
    dispatch_throttling_rate_per_topic_in_byte: int = _bound(
        "dispatchThrottlingRatePerTopicInByte",
        "Bytes that all consumers of one topic (one partition) are sent in a second",
        size=True,
    )
    dispatch_throttling_rate_per_subscription_in_msg: int = _bound(
        "dispatchThrottlingRatePerSubscriptionInMsg",
        "Messages that the consumers of one subscription are sent in a second",
    )
    dispatch_throttling_rate_per_subscription_in_byte: int = _bound(
        "dispatchThrottlingRatePerSubscriptionInByte",
        "Bytes that the consumers of one subscription are sent in a second",
        size=True,
    )
    subscribe_throttling_rate_per_consumer: int = _bound(
        "subscribeThrottlingRatePerConsumer", "How often one consumer may subscribe in a period"
    )
    subscribe_rate_period_per_consumer_in_second: int = setting(
        30,
        Kind.INT,
        "The period of subscribe.throttling.rate.per.consumer.",
        unit="seconds",
        rule=at_least(1),
        pulsar=("subscribeRatePeriodPerConsumerInSecond",),
    )
    delayed_delivery_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        f"Whether messages of Pulsar's producers may wait for their time; else they come at once. {_POLICY}",
        pulsar=("delayedDeliveryEnabled",),
    )
    delayed_delivery_max_delay_in_millis: int = setting(
        0,
        Kind.LONG,
        f"How long a message may ask to wait; producers of others are told so. 0 for no bound. {_POLICY}",
        unit="ms",
        rule=at_least(0),
        pulsar=("delayedDeliveryMaxDelayInMillis",),
    )
    broker_delete_inactive_topics_frequency_seconds: int = setting(
        60,
        Kind.INT,
        "How often the broker looks for unused topics whose policy (inactiveTopicPolicies) has them deleted.",
        unit="seconds",
        rule=at_least(1),
        pulsar=("brokerDeleteInactiveTopicsFrequencySeconds",),
    )
    subscription_expiration_time_minutes: int = setting(
        0,
        Kind.INT,
        f"After how long without consumers a subscription ends; 0 for never. Kafka's groups have offsets.retention."
        f"minutes. {_POLICY}",
        unit="minutes",
        rule=at_least(0),
        pulsar=("subscriptionExpirationTimeMinutes",),
    )
    subscription_expiry_check_interval_in_minutes: int = setting(
        5,
        Kind.INT,
        "How often subscriptions are looked for that have had no consumers for too long.",
        unit="minutes",
        rule=at_least(1),
        pulsar=("subscriptionExpiryCheckIntervalInMinutes",),
    )
    backlog_quota_default_limit_bytes: int = setting(
        -1,
        Kind.LONG,
        f"Size that the backlog of a subscription may have; 0 or less for no bound. {_POLICY}",
        unit="bytes",
        rule=at_least(-1),
        pulsar=("backlogQuotaDefaultLimitBytes",),
    )
    backlog_quota_default_limit_second: int = setting(
        -1,
        Kind.INT,
        f"Age that the oldest message of a backlog may have; 0 or less for no bound. {_POLICY}",
        unit="seconds",
        rule=at_least(-1),
        pulsar=("backlogQuotaDefaultLimitSecond",),
    )
    backlog_quota_default_retention_policy: str = setting(
        QUOTA_POLICIES[0],
        Kind.STRING,
        "What happens when a backlog is too large or too old: producers wait, producers fail, or the slowest "
        "subscription passes over its oldest messages.",
        rule=one_of(*QUOTA_POLICIES),
        pulsar=("backlogQuotaDefaultRetentionPolicy",),
    )
