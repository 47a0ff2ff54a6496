"""The first page: whether all is well and what is not, what comes and goes, and the readers furthest behind."""

from __future__ import annotations

import heapq

from magnetar.admin.health import health_of
from magnetar.auth import Right, may
from magnetar.base.audit import recent
from magnetar.base.slices import sliced
from magnetar.console.page import Command, ConsolePage, Facts, access_of, kafka_tool, magnetar, pulsar_admin
from magnetar.console.standings import oldest_first, standings
from magnetar.console.traffic import Flow, sums_of, traffic_of
from magnetar.pulsar.rest.request import AdminRequest

_MOST = 10


async def facts(ask: AdminRequest) -> Facts:
    """Return what the first page shows, of the topics that the client may see."""
    broker = ask.services.broker
    access, traffic = access_of(ask), traffic_of(ask.services)
    await traffic.refresh()
    total, busy, topics, partitions = Flow(), [], 0, 0
    async for topic in sliced(broker.topics()):
        if topic.internal or not may(access, Right.see, topic.name):
            continue
        topics += 1
        partitions += topic.partitions
        flow, _ = await sums_of(ask.services, topic)
        total = total.plus(flow)
        if flow.bytes_in or flow.bytes_out:
            busy.append((flow.bytes_in + flow.bytes_out, topic.kafka_name, flow))
    busiest = heapq.nlargest(_MOST, busy, key=lambda each: each[0])
    readers = [each async for each in standings(ask)]
    health = await health_of(broker)
    ownership = broker.cluster.ownership
    return {
        "health": {"status": health.status.value, "reasons": list(health.reasons)},
        "node": ownership.node_id,
        "brokers": len(ownership.brokers()),
        "topics": topics,
        "partitions": partitions,
        "readers": len(readers),
        "rates": {"seconds": round(traffic.seconds, 1)} | total._asdict(),
        "busiest": [{"topic": name} | flow._asdict() for _, name, flow in busiest],
        "lags": [
            {
                "name": each.name,
                "protocol": each.protocol,
                "topic": each.topic.kafka_name,
                "lag": each.lag,
                "age_s": age,
                "members": each.members,
            }
            for each, age in await oldest_first(ask, readers, _MOST)
        ],
        "acts": [dict(each) for each in reversed(recent)] if may(access, Right.operate) else None,
    }


def commands(ask: AdminRequest, shown: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("health"),
        kafka_tool(ask, "kafka-consumer-groups", "--describe", "--all-groups"),
        pulsar_admin(ask, "brokers", "healthcheck"),
    ]


PAGE = ConsolePage("", "Overview", facts, commands)
