"""GetTelemetrySubscriptions (KIP-714): which metrics a client is to push, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.client_metrics.instances import COMPRESSIONS, MAX_BYTES, TelemetryRefused
from magnetar.kafka.handlers.telemetry import labels_of
from magnetar.wire.kafka.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from magnetar.wire.kafka.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return what is asked for of this client, if it is not too soon to ask again."""
    instance_id = request.client_instance_id
    try:
        instance_id, wanted = context.kafka.client_metrics.telemetry.subscribed(
            instance_id, labels_of(context, instance_id)
        )
    except TelemetryRefused as refused:
        return GetTelemetrySubscriptionsResponse(error_code=refused.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )
