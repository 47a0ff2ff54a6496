"""What an action is: a form, the right to it, what it would do, and what does it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import AdminError, Declined, Forbidden, Invalid, NotThere, Unreachable
from magnetar.admin.inside import Inside, InsideCluster
from magnetar.auth import Right, may
from magnetar.auth.rights import Resource
from magnetar.console.page import Command, access_of
from magnetar.console.rendering import url
from magnetar.pulsar.rest.request import AdminRequest, InsideCaller
from magnetar.topics.names import TopicName

T = TypeVar("T")
_STATUS: dict[int, type[AdminError]] = {
    400: Invalid, 412: Invalid, 422: Invalid, 403: Forbidden, 404: NotThere, 503: Unreachable,
}  # fmt: skip
_NEXT_STEPS: dict[type[AdminError], str] = {
    Forbidden: "Permissions show which grants a role has.",
    NotThere: "It may have been deleted meanwhile.",
    Unreachable: "Try again in a moment.",
}


class FormField(NamedTuple):
    """A field of a form."""

    name: str
    label: str
    kind: str = "text"
    """text, number, area, select, check, or hidden."""
    value: str = ""
    help: str = ""
    options: Sequence[tuple[str, str]] = ()
    """Of a select: each value and its text."""
    required: bool = False


class ShownTable(NamedTuple):
    """Rows that a preview or an outcome shows; of numbers ``columns`` begin with ``#``."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class ActionOutcome(NamedTuple):
    """An outcome, or what it would be."""

    says: str
    table: ShownTable | None = None
    links: Sequence[tuple[str, str]] = ()
    """Pages to go on with: text and address."""


@dataclass(slots=True)
class Doing:
    """One form as it is filled in, by one client."""

    ask: AdminRequest
    given: Mapping[str, str]
    inside: Inside
    caller: InsideCaller
    at_once: asyncio.Semaphore
    """Orders wait in threads for the loop: never so many that it has none left itself."""

    def text(self, name: str, default: str = "") -> str:
        """Return a field without spaces around it."""
        return self.given.get(name, "").strip() or default

    def needed(self, name: str, label: str = "") -> str:
        """Return a field; raise `Invalid` if it is empty."""
        found = self.text(name)
        if not found:
            raise Invalid(f"{label or name} is missing", "Fill it in.")
        return found

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number that is not negative; raise `Invalid`."""
        text = self.text(name)
        if not text and default is not None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Invalid(f"{name} must be a whole number, not {text[:40]!r}", "Write digits alone.")
        return int(text)

    @property
    def topic(self) -> TopicName:
        """The topic that the form is about; raises ``InvalidTopic``, and `Invalid` if there is none."""
        return self.ask.services.broker.naming.parse(self.needed("topic"))

    @property
    def kafka_topic(self) -> str:
        """The same as Kafka clients call it."""
        return self.ask.services.broker.naming.kafka_name(self.topic)

    def may(self, right: Right, of: Resource = None) -> bool:
        """Return whether the client has a right."""
        return may(access_of(self.ask), right, of)

    async def by_kafka(self, order: Callable[[ClusterAdmin], T]) -> T:
        """Return what an order of the command line's gives, in the client's name; raise `AdminError`."""
        loop = asyncio.get_running_loop()
        cluster = InsideCluster(self.ask.services.broker, self.inside, self.caller, loop)
        async with self.at_once:
            return await asyncio.to_thread(order, cluster)

    async def by_rest(self, verb: str, path: str, query: str = "", body: bytes = b"") -> bytes:
        """Return what the admin REST answers the client; raise its refusal as an `AdminError`."""
        answer = await self.inside.rest(self.caller, verb, path, query, body)
        if answer.status >= 400:
            kind = _STATUS.get(answer.status, Declined)
            raise kind(answer.reason or f"HTTP {answer.status}", _NEXT_STEPS.get(kind, ""))
        return answer.body


def topic_path(name: TopicName, partition: int | None = None) -> str:
    """Return where the admin REST has a topic, or one of its partitions."""
    local = name.local if partition is None else f"{name.local}-partition-{partition}"
    return "/admin/v2/persistent/" + "/".join(
        quote(each, safe="") for each in (name.tenant, name.namespace, local)
    )


class ConsoleAction(NamedTuple):
    """Something that a form has done. It is at ``/console/act/NAME``."""

    name: str
    title: str
    keys: Sequence[str]
    """The fields that say what it is about: they come with the link to the form, and are not edited there."""
    pages: Sequence[str]
    """The pages that link to it."""
    allowed: Callable[[Doing], bool]
    """Whether the client sees the form. What carries it out asks for itself."""
    fields: Callable[[Doing], Awaitable[Sequence[FormField]]]
    run: Callable[[Doing], Awaitable[ActionOutcome]]
    commands: Callable[[Doing], Sequence[Command]]
    button: str
    says: str = ""
    """What it does, for readers that do not know."""
    preview: Callable[[Doing], Awaitable[ActionOutcome]] | None = None
    confirms: str = ""
    """The field whose content has to be typed again: where nothing brings back what is gone."""
    fits: Callable[[Mapping[str, Any]], bool] = lambda facts: True
    """Whether a page with these facts has something for it to do."""

    def link(self, about: Mapping[str, str]) -> str:
        """Return the address of its form."""
        return url(f"act/{self.name}", {key: about.get(key, "") for key in self.keys})


async def no_fields(doing: Doing) -> Sequence[FormField]:
    """Return nothing: there is nothing to choose."""
    return ()
