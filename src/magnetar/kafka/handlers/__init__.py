"""The table of contents: every API that is served, in which versions, and where.

A route's module is named, not imported: each is loaded when a client first asks for it, so that starting a broker
does not wait for code that most clients never use.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from magnetar.wire.kafka.messages import API_KEYS, request_class


@dataclass(frozen=True, slots=True)
class Route:
    """One API: its key, its versions, and the function ``handler`` in the module of the same name."""

    api_key: int
    first: int
    last: int
    handler: str
    asks: bool = False
    """Whether it merely asks, so that nothing is lost if it is given up once nobody listens to the answer."""

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return API_KEYS[self.api_key][0]

    def load(self) -> tuple[Any, Callable[[Any, Any], Coroutine[Any, Any, Any]]]:
        """Give the request's class and the handler."""
        return _load(self.api_key, self.handler)


@cache
def _load(api_key: int, handler: str) -> tuple[Any, Callable[[Any, Any], Coroutine[Any, Any, Any]]]:
    module = import_module(f"magnetar.kafka.handlers.{handler}")
    return request_class(api_key), getattr(module, handler)


ROUTES = (
    Route(0, 3, 13, "produce"),
    Route(1, 4, 18, "fetch", asks=True),
    Route(2, 1, 11, "list_offsets", asks=True),
    Route(3, 0, 13, "metadata", asks=True),
    Route(8, 2, 10, "offset_commit"),
    Route(9, 1, 10, "offset_fetch", asks=True),
    Route(10, 0, 6, "find_coordinator", asks=True),
    Route(11, 0, 9, "join_group"),
    Route(12, 0, 4, "heartbeat"),
    Route(13, 0, 5, "leave_group"),
    Route(14, 0, 5, "sync_group"),
    Route(15, 0, 6, "describe_groups", asks=True),
    Route(16, 0, 5, "list_groups", asks=True),
    Route(17, 0, 1, "sasl_handshake"),
    Route(18, 0, 5, "api_versions", asks=True),
    Route(19, 2, 7, "create_topics"),
    Route(20, 1, 6, "delete_topics"),
    Route(21, 0, 2, "delete_records"),
    Route(22, 0, 5, "init_producer_id"),
    Route(23, 2, 4, "offset_for_leader_epoch", asks=True),
    Route(29, 1, 3, "describe_acls", asks=True),
    Route(30, 1, 3, "create_acls"),
    Route(31, 1, 3, "delete_acls"),
    Route(32, 1, 4, "describe_configs", asks=True),
    Route(33, 0, 2, "alter_configs"),
    Route(35, 1, 5, "describe_log_dirs", asks=True),
    Route(36, 0, 2, "sasl_authenticate"),
    Route(37, 0, 3, "create_partitions"),
    Route(42, 0, 3, "delete_groups"),
    Route(43, 0, 2, "elect_leaders"),
    Route(44, 0, 1, "incremental_alter_configs"),
    Route(45, 0, 1, "alter_partition_reassignments"),
    Route(46, 0, 0, "list_partition_reassignments", asks=True),
    Route(47, 0, 0, "offset_delete"),
    Route(60, 0, 2, "describe_cluster", asks=True),
    Route(61, 0, 0, "describe_producers", asks=True),
    Route(74, 0, 1, "list_config_resources", asks=True),
    Route(75, 0, 0, "describe_topic_partitions", asks=True),
)
ROUTE_BY_KEY = {route.api_key: route for route in ROUTES}
