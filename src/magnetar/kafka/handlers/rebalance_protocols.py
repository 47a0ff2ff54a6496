"""Which protocols of groups are served: an operator may leave some out (``group.coordinator.rebalance.protocols``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


def serves(context: RequestContext, protocol: str) -> bool:
    """Whether groups of a protocol ("consumer", "streams") are served."""
    return protocol in context.kafka.broker.settings.of(GroupSettings).group_coordinator_rebalance_protocols


def check_served(context: RequestContext, protocol: str) -> None:
    """Raise `CoordinatorRefused` as `serves` says, in Kafka's words."""
    if not serves(context, protocol):
        raise CoordinatorRefused(ErrorCode.UNSUPPORTED_VERSION, "The version of API is not supported.")
