"""ListConfigResources (KIP-1142): what has configurations, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.list_config_resources_request import ListConfigResourcesRequest
from magnetar.wire.kafka.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """Return topics, groups that something is set for, client metrics, brokers and their loggers.

    Version 0 asks for client metrics alone.
    """
    kinds = set(request.resource_types) or set(ConfigResourceType)
    if context.api_version == 0:
        kinds = {ConfigResourceType.CLIENT_METRICS}
    if not kinds <= set(ConfigResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    broker = context.kafka.broker
    nodes = [str(each.node_id) for each in broker.cluster.ownership.brokers()]
    names = {
        ConfigResourceType.TOPIC: [topic.kafka_name for topic in broker.topics() if broker.visible(topic)],
        ConfigResourceType.BROKER: nodes,
        ConfigResourceType.BROKER_LOGGER: nodes,
        ConfigResourceType.CLIENT_METRICS: sorted(context.kafka.client_metrics.get().subscriptions),
        ConfigResourceType.GROUP: context.kafka.groups.configs.groups(),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_type=kind, resource_name=name)
            for kind, found in names.items()
            if kind in kinds
            for name in found
        ]
    )
