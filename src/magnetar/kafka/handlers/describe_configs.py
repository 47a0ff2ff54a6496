"""DescribeConfigs: every configuration and where its value comes from: of topics, groups, the broker, its loggers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.kafka.client_metrics.entries import client_metrics_entries
from magnetar.kafka.configs.entries import (
    ConfigEntry,
    TopicRows,
    broker_entries,
    default_entries,
    group_entries,
)
from magnetar.kafka.configs.loggers import logger_entries
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.kafka.configs.resources import check_broker_name, find_topic
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.assignments import PartRefused
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.wire.kafka.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.services import KafkaServices


async def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Answer each resource for itself; no keys, or none named, asks for all."""
    broker = context.kafka.broker
    tell = partial(_told, synonyms=request.include_synonyms, doc=request.include_documentation)
    of_topics = TopicRows(broker, tell)
    return DescribeConfigsResponse(
        results=[
            await _answer(context.kafka, resource, of_topics, tell)
            async for resource in paced(request.resources)
        ]
    )


async def _answer(
    kafka: KafkaServices,
    resource: DescribeConfigsResource,
    of_topics: TopicRows[DescribeConfigsResourceResult],
    tell: Callable[[ConfigEntry], DescribeConfigsResourceResult],
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
    )
    try:
        if resource.resource_type == ConfigResourceType.TOPIC:
            rows = of_topics.of(await find_topic(kafka.broker, resource.resource_name))
        else:
            rows = [tell(entry) for entry in _entries(kafka, resource.resource_type, resource.resource_name)]
        keys = resource.configuration_keys
        result.configs = [row for row in rows if row.name in keys] if keys else rows
    except PartRefused as refused:
        result.error_code, result.error_message = refused.code, str(refused)
    except REFUSALS as error:
        result.error_code, result.error_message = code_for(error), str(error)
    return result


def _entries(kafka: KafkaServices, resource_type: int, name: str) -> list[ConfigEntry]:
    broker = kafka.broker
    if resource_type == ConfigResourceType.BROKER:
        check_broker_name(broker, name)
        return broker_entries(broker) if name else default_entries(broker)
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        check_broker_name(broker, name, or_all=False)
        return logger_entries()
    if resource_type == ConfigResourceType.GROUP:
        if not name:
            raise PartRefused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(broker, kafka.groups.configs.own(name))
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise PartRefused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return client_metrics_entries(kafka.client_metrics.get().own(name))
    raise PartRefused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _told(entry: ConfigEntry, *, synonyms: bool, doc: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.origins[0].source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=origin.name, value=None if entry.sensitive else origin.value, source=origin.source
            )
            for origin in entry.origins
        ]
        if synonyms
        else [],
        config_type=entry.kind,
        documentation=entry.doc if doc else None,
    )
