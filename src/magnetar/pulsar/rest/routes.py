"""The table of contents: every path that is served. Paths with words in them come before those with names."""

from __future__ import annotations

from magnetar.pulsar.rest import (
    bookies,
    broker_stats,
    cluster,
    compaction,
    messages,
    namespaces,
    non_persistent,
    offload,
    policies,
    schemas,
    stats,
    subscriptions,
    tenants,
    topic_policies,
    topics,
    transactions,
)
from magnetar.pulsar.rest.request import RestRoute


def _is_general(route: RestRoute) -> tuple[int, ...]:
    return tuple(segment.startswith("{") for segment in route.full_path.split("/"))


_PARTS = (
    bookies,
    broker_stats,
    cluster,
    compaction,
    tenants,
    policies,
    namespaces,
    topics,
    topic_policies,
    offload,
    non_persistent,
    subscriptions,
    messages,
    stats,
    schemas,
    transactions,
)
ROUTES: tuple[RestRoute, ...] = tuple(
    sorted((route for part in _PARTS for route in part.ROUTES), key=_is_general)
)
