"""DescribeCluster: the cluster's id and its brokers, as the asking listener's clients reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.leaders import brokers
from magnetar.kafka.operations import CLUSTER_OPERATIONS, NOT_ASKED
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_BROKERS, _CONTROLLERS = 1, 2


async def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Tell of brokers; clients that look for controllers (KIP-919) are sent away."""
    if request.endpoint_type == _CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    broker = context.kafka.broker
    return DescribeClusterResponse(
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.cluster.ownership.leader(),
        brokers=[
            DescribeClusterBroker(
                broker_id=each.node_id, host=endpoint.host, port=endpoint.port, rack=each.rack
            )
            for each, endpoint in brokers(context)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
