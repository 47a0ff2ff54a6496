"""PushTelemetry (KIP-714): metrics of a client, which are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.client_metrics.instances import TelemetryRefused
from magnetar.kafka.handlers.telemetry import labels_of
from magnetar.wire.kafka.messages.push_telemetry_request import PushTelemetryRequest
from magnetar.wire.kafka.messages.push_telemetry_response import PushTelemetryResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Take what is asked for, as often as it is asked for."""
    instance_id = request.client_instance_id
    try:
        context.kafka.client_metrics.telemetry.push(
            instance_id,
            labels_of(context, instance_id),
            request.subscription_id,
            request.compression_type,
            len(request.metrics),
            terminating=request.terminating,
        )
    except TelemetryRefused as refused:
        return PushTelemetryResponse(error_code=refused.code)
    return PushTelemetryResponse()
