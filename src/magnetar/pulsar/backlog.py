"""Backlog quotas: what happens to a topic whose slowest subscription lies too far behind, in bytes or in time.

Only Pulsar's durable subscriptions count. A Kafka group is shown as one, or reads in the place of one that is linked to
it, but by its own rules: nobody waits for it, and nothing moves what it committed.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import PulsarError
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.entry import index_of
from magnetar.topics.limits import QUOTA_POLICIES, Quota
from magnetar.wire.pulsar.pulsar_pb2 import ServerError

HOLD, EXCEPTION, EVICTION = QUOTA_POLICIES
_EVICT_TO = 0.9  # as Pulsar does, so that the next message does not begin it again


@dataclass(frozen=True, slots=True)
class TopicBacklog:
    """One partition as the broker's monitor of backlogs knows it; see `magnetar.logs.backlogs`."""

    topic: PulsarTopic

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def is_bounded(self) -> bool:
        """Whether a TTL or a quota may concern it."""
        return self.topic.is_bounded

    async def expire(self, now_ms: int) -> None:
        """Have subscriptions pass over what is older than the message TTL."""
        if ttl_ms := self.topic.limits.message_ttl_ms:
            await self.topic.expire(now_ms - ttl_ms)

    async def enforce(self, now_ms: int) -> None:
        """Hold the backlog against its quotas."""
        await enforce(self.topic, now_ms)


async def check_producer(topic: PulsarTopic, now_ms: int) -> None:
    """Raise why a producer cannot come now; by the code its client knows whether to wait or to fail."""
    if refusal := topic.log.room.refusal:
        raise PulsarError(refusal, ServerError.ProducerBlockedQuotaExceededError)
    for quota in (over_size(topic), await over_age(topic, now_ms)):
        if quota is not None and quota.policy != EVICTION:
            code = (
                ServerError.ProducerBlockedQuotaExceededError
                if quota.policy == HOLD
                else ServerError.ProducerBlockedQuotaExceededException
            )
            raise PulsarError("Cannot create producer on topic with backlog quota exceeded", code)


async def enforce(topic: PulsarTopic, now_ms: int) -> None:
    """Hold the backlog against its quotas: send producers away, or have subscriptions pass over old messages."""
    size, age = over_size(topic), await over_age(topic, now_ms)
    for quota in (size, age):
        if quota is not None and quota.policy != EVICTION:
            topic.producers.send_away()
    if size is not None and size.policy == EVICTION:
        _skip(topic, _place_before(topic, int(size.limit * _EVICT_TO)))
    if age is not None and age.policy == EVICTION:
        _skip(topic, await topic.places.last_before(now_ms - age.limit * 1000))


def over_size(topic: PulsarTopic) -> Quota | None:
    """Return the quota by size, if the backlog is larger."""
    quota = topic.limits.size_quota
    if quota is None or quota.limit <= 0:
        return None
    sizes = (topic.backlog_bytes(each) for each in _counted(topic))
    return quota if max(sizes, default=0) >= quota.limit else None


async def over_age(topic: PulsarTopic, now_ms: int) -> Quota | None:
    """Return the quota by time, if the oldest message that somebody has not acknowledged is older."""
    quota = topic.limits.age_quota
    if quota is None or quota.limit <= 0:
        return None
    for subscription in _counted(topic):
        stored_ms = await _oldest_ms(topic, subscription)
        if stored_ms is not None and now_ms - stored_ms > quota.limit * 1000:
            return quota
    return None


def _counted(topic: PulsarTopic) -> list[Subscription]:
    return [each for each in topic.own_subscriptions() if each.is_durable]


async def _oldest_ms(topic: PulsarTopic, subscription: Subscription) -> int | None:
    if not subscription.backlog:
        return None
    offset = max(await subscription.cursor.start_offset(), topic.log.log_start_offset)
    entries = await topic.log.read(offset, max_bytes=1)
    return index_of(entries[0].data).broker_timestamp if entries else None


def _place_before(topic: PulsarTopic, most_bytes: int) -> Position | None:
    """Return the first place behind which there are about so many bytes at most, as `PulsarTopic.bytes_behind`
    counts.
    """
    left = most_bytes
    for ledger in reversed(topic.log.ledgers()):
        if ledger.size > left:
            kept = ledger.entries * left // ledger.size
            return Position(ledger.ledger_id, ledger.entries - kept - 1)
        left -= ledger.size
    return None


def _skip(topic: PulsarTopic, last: Position | None) -> None:
    if last is None:
        return
    for subscription in _counted(topic):
        if subscription.cursor.mark_delete_position < last:
            subscription.expired += subscription.skip_to(last)
