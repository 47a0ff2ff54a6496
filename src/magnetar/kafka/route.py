"""One API in one value: its key and versions, who may ask for it, where a proxy sends it, and what its messages name.

Modules are named here, not imported: each is loaded when a client first asks for its API, so that starting a broker
does not wait for code that most clients never use.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple

from magnetar.kafka.rights import Rights
from magnetar.kafka.rows import NO_KEY, NO_ROWS, Key, Rows, Way
from magnetar.wire.kafka.messages import API_KEYS, ApiKey, request_class

Handler = Callable[[Any, Any], Coroutine[Any, Any, Any]]
"""``await handler(request, context)`` is the response."""


class Guard(StrEnum):
    """Who may ask, on a broker that has grants, where `magnetar.kafka.rights` has no words for it.

    TOPICS, GROUPS, TRANSACTIONS, CLUSTER and SHARES are modules of `magnetar.kafka.authorization`: the function there
    that has the API's name answers what the client may not do, and asks the handler for the rest.
    """

    TOPICS = "topics"
    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    CLUSTER = "cluster"
    SHARES = "shares"
    OWN = "own"
    """The function ``guard`` in the handler's own file."""
    OPEN = "open"
    """Anybody."""
    SUPER_USERS = "super_users"
    """Super users alone; anybody else loses its connection."""


CHANGES = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_RECORDS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""What administrators do: each request of these has its lines of audit."""

Paths = tuple[tuple[str, ...], ...]


class Names(NamedTuple):
    """Where requests and answers name topics: fields on the way, those that are lists meaning each of their rows."""

    asked: Paths
    answered: Paths


NO_TOPICS = Names((), ())
"""Neither names a topic, or the handler does not look at it."""


def names(asked: str, answered: str | None = None) -> Names:
    """Return where topics are named, as in ``names("topics.name cursor.topic", "responses.name")``; one argument
    is for both.
    """
    return Names(_paths(asked), _paths(asked if answered is None else answered))


def _paths(text: str) -> Paths:
    return tuple(tuple(path.split(".")) for path in text.split())


def versions(first: int, last: int) -> range:
    """Return the versions from the first to the last that is served."""
    return range(first, last + 1)


class LoadedRoute(NamedTuple):
    """What a route's modules hold."""

    request_class: Any
    handler: Handler


class Route:
    """One API. It is served by the function of its name in the module of its name in `magnetar.kafka.handlers`."""

    __slots__ = (
        "_loaded", "answered", "api_key", "asked", "asks", "changes", "handler", "is_eager", "key", "kind",
        "listed_from", "names", "rights", "rows_from", "versions", "way",
    )  # fmt: skip

    def __init__(
        self,
        api_key: ApiKey,
        versions: range,
        *,
        rights: Rights | Guard,
        names: Names,
        way: Way,
        key: Key = NO_KEY,
        rows: Rows = NO_ROWS,
        asks: bool = False,
        is_eager: bool = False,
        listed_from: int | None = None,
        handler: str = "",
    ) -> None:
        """``way``: where a proxy sends it; by the ``key`` that it names, or by its ``rows``.

        ``asks``: it merely asks, so that nothing is lost if it is given up once nobody listens to the answer.

        ``is_eager``: its handler begins inside the event that brought the request, without a task until it waits.

        ``listed_from``: the first version that ApiVersions lists, where Kafka lists versions that it does not serve.

        ``handler``: its function and the module of that, where they do not have the API's name.
        """
        self.api_key = api_key
        self.versions = versions
        self.listed_from = versions[0] if listed_from is None else listed_from
        self.handler = handler or api_key.name.lower()
        self.rights = rights
        self.names = names
        self.way = way
        self.key, self.kind, self.rows_from = key
        self.asked, self.answered = rows
        self.asks = asks
        self.changes = api_key in CHANGES
        self.is_eager = is_eager
        self._loaded: LoadedRoute | None = None

    def __repr__(self) -> str:
        return f"Route({self.name})"

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return API_KEYS[self.api_key][0]

    @property
    def first(self) -> int:
        """The first version that is served."""
        return self.versions[0]

    @property
    def last(self) -> int:
        """The last version that is served."""
        return self.versions[-1]

    def load(self) -> LoadedRoute:
        """Return the request's class and the handler."""
        if self._loaded is None:
            handler = getattr(import_module(f"magnetar.kafka.handlers.{self.handler}"), self.handler)
            self._loaded = LoadedRoute(request_class(self.api_key), handler)
        return self._loaded


def is_reset(request: Any) -> bool:
    """Return whether a commit is by a client outside of the group: what tools do that reset a group's offsets."""
    return bool(request.generation_id_or_member_epoch < 0 and not request.member_id)
