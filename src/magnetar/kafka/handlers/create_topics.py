"""CreateTopics: each topic is made or refused for itself; all that are made share one write to disk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from magnetar.base.errors import TooManyPartitions
from magnetar.kafka.configs.entries import ConfigEntry, TopicRows
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.assignments import PartRefused, check_assignment, check_replication_factor
from magnetar.kafka.handlers.mutations import mutation_quota
from magnetar.node.broker import Broker
from magnetar.serving.pace import drained, paced
from magnetar.topics.new_topic import NewTopic
from magnetar.topics.topic import MAX_NEW_PARTITIONS, Topic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.quotas.managers import MutationQuota

_REPLICAS = 1
_TOO_MANY = str(TooManyPartitions())
_DEFAULT = -1
_METADATA_OF_KAFKA = "__cluster_metadata"
_FIRST_STRICT = 6
"""From this version on a client whose quota is used up is told so by an error, before it makes it wait (KIP-599)."""


async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create, or with ``validate_only`` say what would be."""
    if len(request.topics) > MAX_NEW_PARTITIONS:
        return CreateTopicsResponse(
            topics=[
                _error(each.name, ErrorCode.POLICY_VIOLATION, _TOO_MANY)
                async for each in paced(drained(request.topics))
            ]
        )
    broker = context.kafka.broker
    times: Counter[str] = Counter()
    async for topic in paced(request.topics):
        times[topic.name] += 1
    answers: dict[str, CreatableTopicResult] = {}
    wanted: dict[str, NewTopic] = {}
    partitions = wait_ms = 0
    async for topic in paced(request.topics):
        try:
            if times[topic.name] > 1:
                raise PartRefused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            new = wanted[topic.name] = _checked(broker, topic)
            partitions += new.partitions or 1
        except PartRefused as refused:
            answers[topic.name] = _error(topic.name, refused.code, str(refused))
        except REFUSALS as error:
            answers[topic.name] = _error(topic.name, code_for(error), str(error))
    if partitions > MAX_NEW_PARTITIONS:
        async for name in paced(wanted):
            answers[name] = _error(name, ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    else:
        quota = mutation_quota(context, _FIRST_STRICT)
        if quota is not None:
            await _take_permits(broker, quota, wanted, answers)
        answers |= await _made(broker, wanted, validate_only=request.validate_only)
        if quota is not None:
            wait_ms = quota.wait_ms()
    return CreateTopicsResponse(topics=list(answers.values()), throttle_time_ms=wait_ms)


async def _take_permits(
    broker: Broker,
    quota: MutationQuota,
    wanted: dict[str, NewTopic],
    answers: dict[str, CreatableTopicResult],
) -> None:
    """Take the permits for what can be made, one for each partition; what gets none is not wanted any more."""
    async for name, new in paced(list(wanted.items())):
        try:
            quota.take(broker.plan(new).partitions)
        except REFUSALS as error:
            del wanted[name]
            answers[name] = _error(name, code_for(error), str(error))


async def _made(
    broker: Broker, wanted: dict[str, NewTopic], *, validate_only: bool
) -> dict[str, CreatableTopicResult]:
    configs = TopicRows(broker, _config)
    if validate_only:
        return {name: _planned(broker, configs, name, new) async for name, new in paced(wanted.items())}
    try:
        made = await broker.create_topics(wanted.values())
    except REFUSALS as error:
        return {name: _error(name, code_for(error), str(error)) for name in wanted}
    return {
        name: _told(name, topic, configs)
        if isinstance(topic, Topic)
        else _error(name, code_for(topic), str(topic))
        for name, topic in zip(wanted, made, strict=True)
    }


def _planned(
    broker: Broker, configs: TopicRows[CreatableTopicConfigs], name: str, new: NewTopic
) -> CreatableTopicResult:
    try:
        return _told(name, broker.plan(new), configs)
    except REFUSALS as error:
        return _error(name, code_for(error), str(error))


def _checked(broker: Broker, topic: CreatableTopic) -> NewTopic:
    """Return what is to be made; raise `PartRefused` for replicas and partitions that the brokers cannot give."""
    if topic.name == _METADATA_OF_KAFKA:
        # Tools take it for the log of Kafka's controllers.
        raise PartRefused(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited."
        )
    name = broker.naming.parse(topic.name)
    configs = {config.name: config.value for config in topic.configs}
    partitions = None if topic.num_partitions == _DEFAULT else topic.num_partitions
    if broker.get(topic.name) is not None:
        return NewTopic(name, partitions, configs)  # that it exists is said before all else, as on Kafka
    if not broker.allows(name):
        raise PartRefused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"namespace {name.namespace_name} is not allowed"
        )
    if topic.assignments:
        return NewTopic(name, _assigned(broker, topic), configs)
    if topic.replication_factor != _DEFAULT:
        check_replication_factor(topic.replication_factor, broker.cluster.ownership)
    return NewTopic(name, partitions, configs)


def _assigned(broker: Broker, topic: CreatableTopic) -> int:
    for given, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if given != _DEFAULT:
            message = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise PartRefused(ErrorCode.INVALID_REQUEST, message)
    if len(topic.assignments) > MAX_NEW_PARTITIONS:
        raise PartRefused(ErrorCode.POLICY_VIOLATION, _TOO_MANY)
    if sorted(row.partition_index for row in topic.assignments) != list(range(len(topic.assignments))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise PartRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    replicas = len(topic.assignments[0].broker_ids)
    for row in topic.assignments:
        check_assignment(row.broker_ids, broker.cluster.ownership)
        if len(row.broker_ids) != replicas:
            message = (
                f"The manual partition assignment includes a partition with {len(row.broker_ids)} replica(s), but this "
                f"is not consistent with previous partitions, which have {replicas} replica(s)."
            )
            raise PartRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return len(topic.assignments)


def _told(name: str, topic: Topic, configs: TopicRows[CreatableTopicConfigs]) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=_REPLICAS,
        configs=configs.of(topic),
    )


def _config(entry: ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.origins[0].source,
        is_sensitive=entry.sensitive,
    )


def _error(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])
