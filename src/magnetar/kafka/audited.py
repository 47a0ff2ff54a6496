"""One line of audit for each thing that a Kafka request makes, changes or deletes.

Which requests those are says `magnetar.kafka.route.CHANGES`; all others pass by here untouched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from magnetar.base.audit import Act, Actor, Outcome, note, shown
from magnetar.base.errors import InvalidTopic
from magnetar.base.slices import sliced
from magnetar.node.broker import Broker
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import ApiKey

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Route

_MOST_ROWS = 1000
"""Of one request; the last line says how many more there were."""
_REFUSALS = frozenset(
    each for each in ErrorCode if each.name.endswith(("AUTHORIZATION_FAILED", "AUTH_DISABLED"))
)
_RESOURCES = {2: "topic", 4: "broker", 8: "logger", 16: "client-metrics", 32: "group"}
_COMMITS_EVERY_S = 60.0
_MOST_COMMITS = 1000
_committed: dict[tuple[str, str, str], float] = {}


@dataclass(frozen=True, slots=True)
class AuditedRows:
    """The fields by which a request and its answer name their resources."""

    kind: str
    asked: str
    answered: str
    name: str | None = "name"
    """The field of a row of the answer that names it; None if rows are those of the request in its order."""
    asked_name: str | None = None


_ROWS = {
    ApiKey.CREATE_TOPICS: AuditedRows("topic", "topics", "topics"),
    ApiKey.DELETE_TOPICS: AuditedRows("topic", "topics", "responses"),
    ApiKey.CREATE_PARTITIONS: AuditedRows("topic", "topics", "results"),
    ApiKey.DELETE_RECORDS: AuditedRows("topic", "topics", "topics"),
    ApiKey.ALTER_CONFIGS: AuditedRows("", "resources", "responses", "resource_name", "resource_name"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: AuditedRows(
        "", "resources", "responses", "resource_name", "resource_name"
    ),
    ApiKey.CREATE_ACLS: AuditedRows("acl", "creations", "results", None),
    ApiKey.DELETE_ACLS: AuditedRows("acl", "filters", "filter_results", None),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AuditedRows("user", "upsertions", "results", "user"),
    ApiKey.ALTER_CLIENT_QUOTAS: AuditedRows("quota", "entries", "entries", None),
    ApiKey.DELETE_GROUPS: AuditedRows("group", "groups_names", "results", "group_id"),
}
_ONE = {
    ApiKey.OFFSET_DELETE: ("group", "group_id"),
    ApiKey.OFFSET_COMMIT: ("group", "group_id"),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ("group", "group_id"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ("group", "group_id"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("token", "owner_principal_name"),
}


async def audited(
    work: Coroutine[Any, Any, Any], context: RequestContext, route: Route, request: Any, correlation_id: int
) -> Any:
    """Return what ``work`` does, its lines written."""
    if route.api_key == ApiKey.OFFSET_COMMIT and not _is_due(context, request):
        return await work
    broker, rows = context.kafka.broker, _ROWS.get(ApiKey(route.api_key))
    actor = _actor(context, correlation_id)
    try:
        asked = [each async for each in sliced(_asked(request, rows))]
        before = {name: _state(broker, kind, name) async for kind, name, _ in sliced(asked)}
    except BaseException:
        work.close()  # it was never awaited, of which Python would warn
        raise
    try:
        response = await work
    except (Exception, asyncio.CancelledError) as error:
        async for kind, name, what in sliced(asked):
            note(
                actor,
                Act(route.name, kind, name, Outcome.REFUSED, str(error) or type(error).__name__, asked=what),
            )
        raise
    if getattr(request, "validate_only", False):
        return response
    by_name = {each[1]: each for each in reversed(asked)}
    at = -1
    async for row in sliced(_answered(response, rows)):
        at += 1
        kind, name, what = _asked_for(asked, by_name, rows, row, at)
        code = _code(row)
        told = getattr(row, "error_message", None) or ""
        after = _state(broker, kind, name) if not code else None
        note(
            actor,
            Act(
                route.name, kind, name, _outcome(code), f"{ErrorCode(code).name} {told}".strip() if code else "",
                before.get(name), after, what,
            ),
        )  # fmt: skip
        if at == _MOST_ROWS:
            more = len(getattr(response, rows.answered)) - at if rows else 0
            note(actor, Act(route.name, kind, f"and {more} more"))
            break
    return response


def _is_due(context: RequestContext, request: Any) -> bool:
    """Return whether a commit without a group's generation is worth a line: some clients commit so all day long."""
    if context.door != "kafka":
        return True  # a person asked for it
    if len(_committed) > _MOST_COMMITS:
        _committed.clear()
    now, key = time.monotonic(), (_principal(context), context.client_host, request.group_id)
    if now - _committed.get(key, -_COMMITS_EVERY_S) < _COMMITS_EVERY_S:
        return False
    _committed[key] = now
    return True


def _principal(context: RequestContext) -> str:
    login = context.login
    return "" if login is None or login.principal is None else login.principal.role


def _actor(context: RequestContext, correlation_id: int) -> Actor:
    login, software = context.login, context.software
    principal = None if login is None else login.principal
    named = " ".join(filter(None, (context.client_id, software.name, software.version)))
    return Actor(
        _principal(context), context.door, context.client_host.lstrip("/"), named, context.listener.name,
        "" if principal is None else principal.proxy, str(correlation_id),
    )  # fmt: skip


_Asked = tuple[str, str, Any]


def _asked(request: Any, rows: AuditedRows | None) -> Iterator[_Asked]:
    """Yield what a request is about: kinds, names, and what is asked; before it is handled, which uses it up."""
    if rows is None:
        kind, field = _ONE.get(request.API_KEY, ("broker", ""))
        yield kind, str(getattr(request, field, "") or ""), shown(request)
        return
    for row in islice(getattr(request, rows.asked) or (), _MOST_ROWS):
        name = row if isinstance(row, str) else getattr(row, rows.asked_name or rows.name or "", None)
        kind = rows.kind or _RESOURCES.get(getattr(row, "resource_type", 0), "resource")
        yield kind, name or "", None if isinstance(row, str) else shown(row)
    for extra in ("topic_names", "deletions"):  # older DeleteTopics, and SCRAM's other half
        for row in islice(getattr(request, extra, None) or (), _MOST_ROWS):
            name = row if isinstance(row, str) else row.name
            yield rows.kind, name, None if isinstance(row, str) else shown(row)


def _answered(response: Any, rows: AuditedRows | None) -> list[Any]:
    return (
        [response] if rows is None else list(islice(getattr(response, rows.answered) or (), _MOST_ROWS + 1))
    )


def _asked_for(
    asked: Sequence[_Asked], by_name: Mapping[str, _Asked], rows: AuditedRows | None, row: Any, at: int
) -> _Asked:
    """Return which of what was asked a row of the answer is about."""
    if rows is None or rows.name is None:
        return asked[at] if at < len(asked) else (rows.kind if rows else "", "", None)
    name = getattr(row, rows.name) or ""
    if at < len(asked) and asked[at][1] == name:
        return asked[at]
    return by_name.get(name, (rows.kind, name, None))


def _code(row: Any) -> int:
    code = getattr(row, "error_code", 0)
    if code:
        return int(code)
    for field in ("partitions", "topics"):
        for each in getattr(row, field, None) or ():
            if found := _code(each):
                return found
    return 0


def _outcome(code: int) -> Outcome:
    if not code:
        return Outcome.DONE
    return Outcome.REFUSED if code in _REFUSALS else Outcome.FAILED


def _state(broker: Broker, kind: str, name: str) -> Mapping[str, Any] | None:
    """Return what is known of a thing now; None for what is not there, or stands in the request."""
    topic = None
    if kind == "topic" and name:
        with suppress(InvalidTopic):  # the answer says so
            topic = broker.get(name)
    if topic is None:
        return None
    return {"partitions": topic.partitions, "configs": dict(topic.overrides)}
