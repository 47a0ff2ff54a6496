"""What a page of the console is, and what all of them share: who may see it, and links of one to another."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.responses import Response

from magnetar.auth import Access, Right, may
from magnetar.base.errors import TopicNotFound
from magnetar.pulsar.rest.request import AdminRequest, RestError
from magnetar.topics.topic import Topic

Facts = dict[str, Any]
"""What a page shows, as JSON can say it."""
Command = tuple[str, str]
"""The name of a tool, and the line that says the same as a page."""


class ConsolePage(NamedTuple):
    """A page below ``/console/``, and with ``.json`` behind its name the same facts for programs."""

    name: str
    """Empty for the first one."""
    title: str
    facts: Callable[[AdminRequest], Awaitable[Facts | Response]]
    """Gathers them for the client, of what that one may see; raises what the admin REST raises. A response is sent as
    it is: a download."""
    commands: Callable[[AdminRequest, Facts], list[Command]]
    in_menu: bool = True
    of_topic: bool = False
    """Whether it is about the topic that the query names."""
    has_script: bool = False
    """True for a page that loads a script of the console's own; browsers run none in all others."""

    @property
    def template(self) -> str:
        return f"{self.name or 'overview'}.html"


def access_of(ask: AdminRequest) -> Access | None:
    """Return what the client may do; None where all is allowed."""
    return ask.services.broker.security.authorization.access_of(ask.principal)


def check_right(ask: AdminRequest, right: Right) -> None:
    """Raise ``RestError`` (403) unless the client has a right to the whole broker."""
    if not may(access_of(ask), right):
        raise RestError(403, f"{ask.principal.role or 'anonymous'} is not {right}")


def topic_of(ask: AdminRequest, right: Right) -> Topic:
    """Return the topic that the query names, in any spelling, if the client has this right to it.

    Raises ``RestError`` (400, 403), ``InvalidTopic`` and ``TopicNotFound``. A client without the right does
    not learn whether the topic is there.
    """
    given = ask.query.get("topic", "")
    if not given:
        raise RestError(400, "topic=NAME is missing")
    broker = ask.services.broker
    name = broker.naming.parse(given)
    if not may(access_of(ask), right, name):
        raise RestError(403, f"{ask.principal.role or 'anonymous'} may not {right}")
    topic = broker.get(broker.naming.kafka_name(name))
    if topic is None:
        raise TopicNotFound(f"Topic {given} not found")
    return topic


def about(ask: AdminRequest, topic: Topic, partition: int | None = None) -> AdminRequest:
    """Return the request as the admin REST has it whose path names a topic, or one of its partitions."""
    local = topic.name.local
    if partition is not None and topic.partitioned:
        local = f"{local}-partition-{partition}"
    path = {"tenant": topic.name.tenant, "namespace": topic.name.namespace, "topic": local}
    return replace(ask, path=path, domain="persistent")


def whole(ask: AdminRequest, name: str, default: int, least: int, most: int) -> int:
    """Return a whole number of the query within bounds; raise ``RestError`` (400) for anything else than a number."""
    return min(max(ask.number(name, default), least), most)


def kafka_tool(ask: AdminRequest, tool: str, *words: str) -> Command:
    """Return the line of a tool that comes with Kafka."""
    ownership = ask.services.broker.cluster.ownership
    own = next((each.endpoints for each in ownership.brokers() if each.node_id == ownership.node_id), {})
    beside = ("PULSAR", "PULSAR_SSL", "HTTP", "HTTPS")
    address = next((str(place) for name, place in own.items() if name not in beside), "localhost:9092")
    return tool, line(f"{tool}.sh", "--bootstrap-server", address, *words)


def pulsar_admin(ask: AdminRequest, *words: str) -> Command:
    """Return the line of ``pulsar-admin``."""
    url = ask.address.http or ask.address.https or "http://localhost:8080"
    return "pulsar-admin", line("pulsar-admin", "--admin-url", url, *words)


def magnetar(*words: str) -> Command:
    """Return the line of our own tool."""
    return "magnetar", line("magnetar", *words)


def line(*words: str) -> str:
    """Return words as a shell takes them."""
    return " ".join(shlex.quote(word) for word in words)
