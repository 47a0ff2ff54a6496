"""Where clients are sent: the brokers as a listener's clients reach them, and who leads a partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.cluster.ownership import BrokerInfo
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.serving.listeners import Endpoint
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

TELLS_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors with which Kafka names the leader in the same answer (KIP-951)."""


def brokers(context: RequestContext) -> Iterator[tuple[BrokerInfo, Endpoint]]:
    """Yield the brokers that clients of the asking listener can reach, and where."""
    ownership = context.kafka.broker.cluster.ownership
    for each in ownership.brokers():
        endpoint = _endpoint(context, each)
        if endpoint is not None:
            yield each, endpoint


def endpoint_of(context: RequestContext, node_id: int) -> Endpoint | None:
    """Return where clients of the asking listener reach a broker; None if they cannot, or it does not live."""
    found = (each for each in context.kafka.broker.cluster.ownership.brokers() if each.node_id == node_id)
    return next((_endpoint(context, each) for each in found), None)


def _endpoint(context: RequestContext, broker: BrokerInfo) -> Endpoint | None:
    if broker.node_id == context.kafka.broker.cluster.ownership.node_id:
        return context.listener.advertised  # where the client has just come in
    return broker.endpoints.get(context.listener.name)


class Misled(NamedTuple):
    """A row of an answer with an error of `TELLS_LEADER`, and the partition that it is about."""

    topic: str
    topic_id: bytes
    partition: int
    row: Any


async def tell_leaders(
    context: RequestContext, misled: Iterable[Misled], leader_row: type[Any], node_row: type[Any]
) -> list[Any]:
    """Say in each row who leads the partition, and return where clients reach those brokers (KIP-951).

    The rows are made of the message's own classes, which differ for Produce and Fetch in nothing but where they stand.
    """
    broker = context.kafka.broker
    nodes: dict[int, Any] = {}
    async for name, topic_id, partition, row in paced(misled):
        topic = named_topic(broker, name, topic_id)
        owner = None if topic is None else broker.cluster.ownership.owner(topic.name, partition)
        if owner is None:
            continue
        row.current_leader = leader_row(leader_id=owner.node_id, leader_epoch=owner.epoch)
        endpoint = endpoint_of(context, owner.node_id)
        if endpoint is not None:
            rack = next(
                each.rack for each in broker.cluster.ownership.brokers() if each.node_id == owner.node_id
            )
            nodes[owner.node_id] = node_row(
                node_id=owner.node_id, host=endpoint.host, port=endpoint.port, rack=rack
            )
    return list(nodes.values())
