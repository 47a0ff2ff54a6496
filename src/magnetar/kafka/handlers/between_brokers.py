"""What Magnetar's brokers ask each other that Kafka has no words for (`magnetar.wire.kafka.between_brokers`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.kafka.route import NO_TOPICS, Guard, LoadedRoute, Route, versions
from magnetar.kafka.rows import Way
from magnetar.wire.kafka.between_brokers import (
    BETWEEN_BROKERS_KEY,
    BetweenBrokersRequest,
    BetweenBrokersResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.authorization.checks import Checks
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler


async def between_brokers(request: BetweenBrokersRequest, context: RequestContext) -> BetweenBrokersResponse:
    """Have those answer whom the question is about."""
    return BetweenBrokersResponse(
        await context.kafka.broker.cluster.between.answered(request.about, request.asked)
    )


async def guard(
    request: BetweenBrokersRequest, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """CLUSTER_ACTION on the cluster; anybody else loses its connection."""
    if not checks.on_cluster(Right.act_for_cluster):
        raise ConnectionAbortedError("it takes the right to act for the cluster")
    return await answer(request, context)


class _OwnRoute(Route):
    """A route that no client is told of."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(
            BETWEEN_BROKERS_KEY,  # type: ignore[arg-type]  # none of Kafka's
            versions(0, 0),
            rights=Guard.OWN,
            names=NO_TOPICS,
            way=Way.ANY,
            handler="between_brokers",
        )
        self._loaded = LoadedRoute(BetweenBrokersRequest, between_brokers)

    @property
    def name(self) -> str:
        """The name of the API."""
        return "BetweenBrokers"


ROUTE = _OwnRoute()
