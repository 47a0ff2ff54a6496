"""What of a client subscriptions of metrics may ask for (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


def labels_of(context: RequestContext, instance_id: bytes) -> dict[str, str]:
    """Return a client's labels, by Kafka's names. Ports are not told: each connection has another one."""
    return {
        "client_instance_id": str(UUID(bytes=instance_id)),
        "client_id": context.client_id,
        "client_software_name": context.software.name or "unknown",
        "client_software_version": context.software.version or "unknown",
        "client_source_address": context.client_host.removeprefix("/"),
    }
