"""One request as an endpoint sees it, the routes that lead there, and what may be refused on the way."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from magnetar.auth.authentication import Principal
from magnetar.auth.authorization import may
from magnetar.auth.rights import Resource, Right, Subscribed, Tenant
from magnetar.cluster.ownership import Ownership
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.services import PulsarServices
from magnetar.topics.limits import unquoted


class RestError(Exception):
    """A refusal with its HTTP status; the text becomes Pulsar's ``{"reason": ...}``."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


INSIDE = "magnetar.inside"
"""The key of a scope that holds a `InsideCaller`; nothing that comes over a network sets keys of scopes."""


@dataclass(slots=True)
class InsideCaller:
    """A client whose request comes from within the broker: it has shown to another part of it who it is."""

    principal: Principal
    door: str
    """By which part of the broker it came, as audit lines name it."""
    address: str = ""
    client: str = ""
    """What the client calls itself."""
    moved_to: int | None = None
    """The broker to ask instead, once the request was answered so."""


class RequiredLevel(StrEnum):
    """Who may ask: Pulsar's levels."""

    nobody = "nobody"
    """Open to all, as health checks are."""
    metrics = "anybody, or nobody where authenticate.metrics.endpoint is off"
    anybody = "anybody"
    """Everybody who is let in."""
    super_user = "super user"
    tenant = "tenant admin"
    look_up = "produce or consume on the topic"
    produce = "produce on the topic"
    consume = "consume on the topic"


@dataclass
class AdminRequest:
    """One request: path values by name, query, body, and the services that answer it."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    services: PulsarServices
    principal: Principal
    address: Address
    domain: str = "persistent"
    """``persistent`` or ``non-persistent``: what the path says of topics."""
    changes: bool = True
    """Whether it may change something; set by endpoints that find out that it only asks, though by POST."""

    @property
    def namespace(self) -> str:
        """``tenant/namespace`` of the path."""
        return f"{self.path['tenant']}/{self.path['namespace']}"

    @cached_property
    def topic(self) -> PulsarName:
        """The topic, or the partition, that the path names; raises ``InvalidTopic``."""
        return PulsarName.parse(f"{self.domain}://{self.namespace}/{self.path['topic']}")

    @property
    def is_of_browser(self) -> bool:
        """Whether a browser asks. What it reads for a page of any site, an image say, must not change anything."""
        return self.headers.get("user-agent", "").startswith("Mozilla/")

    def json(self, default: Any = None) -> Any:
        """Return the body; raise ``RestError`` (400) if it is no JSON."""
        if not self.body.strip():
            return default
        try:
            return json.loads(self.body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise RestError(400, f"the body is not JSON: {error}") from None

    def object(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object."""
        found = self.json({})
        if not isinstance(found, dict):
            raise RestError(400, f"the body must be a JSON object, not {type(found).__name__}")
        return found

    def strings(self) -> list[str]:
        """Return the body, which must be a JSON array of strings."""
        found = self.json([])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise RestError(400, "the body must be a JSON array of strings")
        return found

    def number(self, name: str, default: int | None = None) -> int:
        """Return an integer of the path or the query; raise ``RestError`` (400)."""
        text = self.path.get(name, self.query.get(name))
        if text is None:
            if default is None:
                raise RestError(400, f"{name} is missing")
            return default
        try:
            return int(text)
        except ValueError:
            raise RestError(400, f"{name} must be a whole number, not {text!r}") from None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean of the query."""
        text = self.query.get(name)
        return default if text is None else text.lower() == "true"


_WORDS: Mapping[type, Callable[[str], Any]] = {
    int: unquoted,
    bool: lambda text: {"true": True, "false": False}.get(text.lower(), text),
}


def scalar(value: Any, kind: type) -> Any:
    """Return a value that should be of this kind as Pulsar's JSON reader takes it: it may stand in a string."""
    read = _WORDS.get(kind)
    return read(value.strip()) if isinstance(value, str) and read else value


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


class Address(NamedTuple):
    """Where clients reach a broker; empty where a listener is not served."""

    pulsar: str
    pulsar_tls: str
    http: str
    https: str

    @property
    def broker(self) -> str:
        """What Pulsar calls the broker: host and port of its web service."""
        return (self.http or self.https).partition("://")[2]


def address_of(ownership: Ownership, node_id: int, own: Address) -> Address:
    """Return where clients reach a broker; ``own`` is this one's. All is empty for one that does not live."""
    if node_id == ownership.node_id:
        return own
    found = (each.endpoints for each in ownership.brokers() if each.node_id == node_id)
    endpoints = next(found, {})
    urls = (f"{scheme}://{endpoints[name]}" if name in endpoints else "" for scheme, name in _SCHEMES)
    return Address(*urls)


_SCHEMES = (("pulsar", "PULSAR"), ("pulsar+ssl", "PULSAR_SSL"), ("http", "HTTP"), ("https", "HTTPS"))


class Reply(NamedTuple):
    """An answer that is not simply JSON."""

    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}
    status: int = 200


Endpoint = Callable[[AdminRequest], Awaitable[Any]]
"""Gives what becomes the JSON of the answer, a `Reply`, or None for 204 No Content."""


class RestRoute(NamedTuple):
    """One line of the table. ``path`` is below /admin/v2 unless it begins with ``//``."""

    method: str
    path: str
    endpoint: Endpoint
    needs: RequiredLevel

    @property
    def full_path(self) -> str:
        return self.path[1:] if self.path.startswith("//") else f"/admin/v2{self.path}"

    @property
    def domain(self) -> str:
        """Which topics the path is about."""
        return "non-persistent" if "/non-persistent/" in self.full_path else "persistent"

    @property
    def summary(self) -> str:
        """What it does: the first line of the endpoint's docstring."""
        return (self.endpoint.__doc__ or "").strip().partition("\n")[0]


def check(ask: AdminRequest, route: RestRoute) -> None:
    """Raise ``RestError`` unless whoever asks may."""
    needs, role = route.needs, ask.principal.role
    if needs in (RequiredLevel.nobody, RequiredLevel.metrics, RequiredLevel.anybody):
        return
    if needs is RequiredLevel.look_up and ask.topic.finds_coordinator:
        return  # all who have logged in may find a transaction coordinator
    access = ask.services.broker.security.authorization.access_of(ask.principal)
    if access is None or may(access, *_wanted(ask, needs)):
        if needs is RequiredLevel.tenant and "topic" in ask.path:
            check_topic(ask, _right_of_admin(route), ask.topic)
        return
    tenant = ask.path.get("tenant")
    if tenant is not None and tenant not in ask.services.broker.namespaces.tenants():
        raise RestError(404, "Tenant does not exist")  # as all may know, and Pulsar tells them
    raise RestError(
        403, f"{role or 'anonymous'} is not {needs}" if " on " not in needs else f"{role} may not {needs}"
    )


def _wanted(ask: AdminRequest, needs: RequiredLevel) -> tuple[Right, Resource]:
    """Return which right to what a level means for this path."""
    if needs is RequiredLevel.super_user:
        return Right.operate, None
    if needs is RequiredLevel.tenant:
        return Right.administer, Tenant(ask.path["tenant"])
    topic, subscription = ask.topic.topic, ask.path.get("subscription")
    if needs is RequiredLevel.look_up:
        return Right.see, topic
    if needs is RequiredLevel.produce:
        return Right.produce, topic
    return Right.consume, topic if subscription is None else Subscribed(topic, subscription)


_ADMINS = {
    ("PUT", "{topic}"): Right.create,
    ("DELETE", "{topic}"): Right.delete,
    ("PUT", "partitions"): Right.create,
    ("POST", "partitions"): Right.alter,
    ("DELETE", "partitions"): Right.delete,
    ("DELETE", "truncate"): Right.delete,
    ("POST", "trim"): Right.delete,
    ("POST", "terminate"): Right.alter,
    ("PUT", "unload"): Right.alter,
    ("PUT", "compaction"): Right.alter,
    ("PUT", "offload"): Right.alter,
    ("POST", "permissions"): Right.alter,
    ("DELETE", "permissions"): Right.alter,
    ("DELETE", "schema"): Right.alter,
}
"""What a tenant's admin does to a topic by a method and a path, in Kafka's words; by all others it alters policies."""


def _right_of_admin(route: RestRoute) -> Right:
    """Return the right to its topic that a route stands for: a tenant's admin has it unless an ACL denies it."""
    if route.method == "GET":
        return Right.see
    _, _, rest = route.full_path.partition("{topic}")
    return _ADMINS.get((route.method, rest.split("/")[1] if rest else "{topic}"), Right.alter_configs)


def check_topic(ask: AdminRequest, right: Right, name: PulsarName) -> None:
    """Raise ``RestError`` (403) unless whoever asks has a right to a topic, by the subscription of the path if any."""
    role, subscription = ask.principal.role, ask.path.get("subscription")
    access = ask.services.broker.security.authorization.access_of(ask.principal)
    by_subscription = right is Right.consume and subscription is not None
    if not may(access, right, Subscribed(name.topic, subscription or "") if by_subscription else name.topic):
        raise RestError(403, f"{role or 'anonymous'} is denied {name.topic}: {right}")
