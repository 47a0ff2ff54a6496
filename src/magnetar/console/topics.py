"""The list of topics: filtered, sorted and in pages, whatever there are.

What is in memory is gathered in slices of the loop; filtering, sorting and rendering are done in a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.auth import Right, may
from magnetar.base.slices import sliced
from magnetar.console.page import (
    Command,
    ConsolePage,
    Facts,
    access_of,
    kafka_tool,
    magnetar,
    pulsar_admin,
    whole,
)
from magnetar.console.standings import standings
from magnetar.console.traffic import sums_of, traffic_of
from magnetar.pulsar.rest.request import AdminRequest, RestError

PER_PAGE = 100
_MOST_PER_PAGE = 1000


class TopicLine(NamedTuple):
    """A topic of many. Sizes in bytes; rates per second."""

    name: str
    tenant: str
    namespace: str
    local: str
    partitions: int
    format: str
    size: int | None
    """Of the partitions that were open since the broker began; None if none was."""
    records_in: float
    bytes_in: float
    records_out: float
    bytes_out: float
    readers: int
    lag: int
    internal: bool


SORTS: dict[str, Callable[[TopicLine], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "size": lambda row: row.size or 0,
    "in": lambda row: row.bytes_in,
    "out": lambda row: row.bytes_out,
    "readers": lambda row: row.readers,
    "lag": lambda row: row.lag,
}
"""The columns that a list can be sorted by; numbers are sorted from the largest."""


async def facts(ask: AdminRequest) -> Facts:
    """Return one page of the list.

    Query: ``q`` a part of the name, ``tenant``, ``namespace``, ``sort`` a column, ``up`` to turn the order around,
    ``internal`` for the coordinators' own, ``page`` from 1, ``size`` rows on it.
    """
    sort = ask.query.get("sort", "name")
    if sort not in SORTS:
        raise RestError(400, f"sort must be one of {', '.join(SORTS)}")
    size = whole(ask, "size", PER_PAGE, 1, _MOST_PER_PAGE)
    number = whole(ask, "page", 1, 1, 1 << 31)
    rows = await _rows(ask)
    turned = ask.flag("up") != (sort != "name")

    def chosen() -> Facts:
        wanted = ask.query.get("q", "").lower()
        found = [row for row in rows if wanted in row.name.lower()] if wanted else rows
        found = sorted(found, key=SORTS[sort], reverse=turned)
        pages = max((len(found) + size - 1) // size, 1)
        first = (min(number, pages) - 1) * size
        return {
            "topics": [row._asdict() for row in found[first : first + size]],
            "found": len(found),
            "page": min(number, pages),
            "pages": pages,
            "sort": sort,
            "tenants": sorted({row.tenant for row in rows}),
            "namespaces": sorted({f"{row.tenant}/{row.namespace}" for row in rows}),
        }

    return await asyncio.to_thread(chosen)


async def _rows(ask: AdminRequest) -> list[TopicLine]:
    broker, access = ask.services.broker, access_of(ask)
    tenant, namespace = ask.query.get("tenant", ""), ask.query.get("namespace", "")
    with_internal = ask.flag("internal")
    await traffic_of(ask.services).refresh()
    readers: Counter[bytes] = Counter()
    lags: Counter[bytes] = Counter()
    async for each in standings(ask):
        readers[each.topic.topic_id] += 1
        lags[each.topic.topic_id] += each.lag or 0
    rows = []
    async for topic in sliced(broker.topics()):
        name = topic.name
        if (tenant and name.tenant != tenant) or (namespace and name.namespace_name != namespace):
            continue
        if (topic.internal and not with_internal) or not may(access, Right.see, name):
            continue
        flow, size = await sums_of(ask.services, topic)
        rows.append(
            TopicLine(
                topic.kafka_name,
                name.tenant,
                name.namespace,
                name.local,
                topic.partitions,
                topic.config.entry_format,
                size,
                flow.records_in,
                flow.bytes_in,
                flow.records_out,
                flow.bytes_out,
                readers[topic.topic_id],
                lags[topic.topic_id],
                topic.internal,
            )
        )
    return rows


def commands(ask: AdminRequest, shown: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    namespace = ask.query.get("namespace") or "public/default"
    return [
        magnetar("topic", "list"),
        kafka_tool(ask, "kafka-topics", "--list"),
        pulsar_admin(ask, "topics", "list", namespace),
    ]


PAGE = ConsolePage("topics", "Topics", facts, commands)
