"""DescribeConfigs: every configuration with where its value comes from, for topics, the broker and its loggers."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from magnetar.broker.core import Broker
from magnetar.kafka.configs.entries import Entry, Resource, broker_entries, default_entries, topic_entries
from magnetar.kafka.configs.loggers import logger_entries
from magnetar.kafka.configs.resources import check_broker_name, find_topic
from magnetar.kafka.handlers.assignments import Refused
from magnetar.kafka.handlers.broker_errors import REFUSALS, broker_code
from magnetar.kafka.pace import paced
from magnetar.kafka.wire.errors import ErrorCode
from magnetar.kafka.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.kafka.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Answer each resource for itself; no keys, or none named, asks for all."""
    teller = _Teller(context.kafka.broker, request)
    return DescribeConfigsResponse(
        results=[teller.answer(resource) async for resource in paced(request.resources)]
    )


class _Teller:
    """Tells of a request's resources. Topics of a namespace that say nothing themselves share what is told of them."""

    def __init__(self, broker: Broker, request: DescribeConfigsRequest) -> None:
        self._broker = broker
        self._synonyms = request.include_synonyms
        self._doc = request.include_documentation
        self._shared: dict[str, list[DescribeConfigsResourceResult]] = {}

    def answer(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            result.configs = self._configs(resource)
        except Refused as refused:
            result.error_code, result.error_message = refused.code, str(refused)
        except REFUSALS as error:
            result.error_code, result.error_message = broker_code(error), str(error)
        return result

    def _configs(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        broker, keys = self._broker, resource.configuration_keys
        if resource.resource_type != Resource.TOPIC:
            return self._told(_entries(broker, resource.resource_type, resource.resource_name), keys)
        topic = find_topic(broker, resource.resource_name)
        if topic.overrides or keys:
            return self._told(topic_entries(broker, topic), keys)
        namespace = topic.name.namespace_name
        if namespace not in self._shared:
            self._shared[namespace] = self._told(topic_entries(broker, topic), None)
        return self._shared[namespace]

    def _told(
        self, entries: list[Entry], keys: Collection[str] | None
    ) -> list[DescribeConfigsResourceResult]:
        chosen = [entry for entry in entries if entry.name in keys] if keys else entries
        return [_told(entry, synonyms=self._synonyms, doc=self._doc) for entry in chosen]


def _entries(broker: Broker, resource_type: int, name: str) -> list[Entry]:
    if resource_type == Resource.BROKER:
        check_broker_name(broker, name)
        return broker_entries(broker) if name else default_entries(broker)
    if resource_type == Resource.BROKER_LOGGER:
        check_broker_name(broker, name, or_all=False)
        return logger_entries()
    raise Refused(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _told(entry: Entry, *, synonyms: bool, doc: bool) -> DescribeConfigsResourceResult:
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
