"""One line of audit for each request of the admin REST that changes something."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.requests import Request

from magnetar.base.audit import Act, Actor, Outcome, note, shown
from magnetar.base.errors import InvalidTopic
from magnetar.pulsar.rest.request import INSIDE, AdminRequest, InsideCaller, RestRoute
from magnetar.pulsar.services import PulsarServices

_READS = frozenset({"GET", "HEAD"})
_ASKS = ("/compatibility", "/version", "/backlogSize")
"""Ends of paths that only ask, though by POST or PUT."""
_KINDS = ("topic", "namespace", "tenant", "cluster")


def changes(route: RestRoute) -> bool:
    """Return whether requests of a route may change something."""
    return route.method not in _READS and not route.full_path.endswith(_ASKS)


class RestAct:
    """One request from when its path is known to its answer."""

    def __init__(self, request: Request, route: RestRoute, services: PulsarServices) -> None:
        self._request = request
        self._route = route
        self._services = services
        self._ask: AdminRequest | None = None
        self._before: Any = None

    def begins(self, ask: AdminRequest) -> None:
        """It is known who asks, and for what: what is there now is looked at."""
        self._ask = ask
        self._before = self._state()

    def ends(self, status: int, reason: str) -> None:
        """Write the line, unless another broker is to be asked."""
        if status == 307 or (self._ask is not None and not self._ask.changes):
            return
        kind, name = self._what()
        outcome = Outcome.of_status(status)
        note(
            self._actor(),
            Act(
                f"{self._route.method} {self._route.full_path}", kind, name, outcome,
                "" if status < 400 else f"{status} {reason}", self._before,
                self._state() if outcome is Outcome.DONE else None, self._asked(),
            ),
        )  # fmt: skip

    def _actor(self) -> Actor:
        request, ask = self._request, self._ask
        caller: InsideCaller | None = request.scope.get(INSIDE)
        if caller is not None:
            principal = caller.principal
            return Actor(principal.role, caller.door, caller.address, caller.client, proxy=principal.proxy)
        return Actor(
            "(not authenticated)" if ask is None else ask.principal.role, "admin-rest",
            request.client.host if request.client else "", request.headers.get("user-agent", ""),
            proxy="" if ask is None else ask.principal.proxy,
            request=request.headers.get("x-request-id", ""),
        )  # fmt: skip

    def _what(self) -> tuple[str, str]:
        path = self._request.path_params
        kind = next((each for each in _KINDS if each in path), "broker")
        if kind == "topic":
            return kind, f"{self._route.domain}://{path['tenant']}/{path['namespace']}/{path['topic']}"
        if kind == "namespace":
            return kind, f"{path['tenant']}/{path['namespace']}"
        return kind, str(path.get(kind, path.get("name", "")))

    def _asked(self) -> Any:
        path = {name: each for name, each in self._request.path_params.items() if name not in _KINDS}
        found: dict[str, Any] = {**path, **self._request.query_params}
        if self._ask is not None and self._ask.body.strip():
            try:
                found["body"] = self._ask.json()
            except Exception:  # it was refused for that
                found["body"] = f"({len(self._ask.body)} bytes)"
        return shown(found) or None

    def _state(self) -> Any:
        """Return what is known of the thing now; None for what is not there."""
        broker, (kind, name) = self._services.broker, self._what()
        if kind == "namespace":
            return dict(broker.namespaces.content(name)) if name in broker.namespaces else None
        if kind == "tenant":
            known = name in broker.namespaces.tenants()
            return {"admins": sorted(broker.namespaces.admin_roles(name))} if known else None
        topic = None
        if kind == "topic":
            with suppress(InvalidTopic):  # of what is not persistent the broker's core knows nothing
                topic = broker.get(name)
        if topic is None:
            return None
        policies = dict(self._services.topics.policies.content(topic.name))
        return {"partitions": topic.partitions, "configs": dict(topic.overrides), "policies": policies}
