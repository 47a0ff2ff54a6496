"""The guard of each API whose rights are declared on its route (`magnetar.kafka.rights`): one interpreter for all."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import cache, partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from magnetar.kafka.authorization import operations
from magnetar.kafka.authorization.checks import Checks, GuardFunction, sentence
from magnetar.kafka.operations import NOT_ASKED
from magnetar.kafka.rights import SEES_TOPIC, May, Need, Rights
from magnetar.kafka.rows import KeyRows, PartitionRows
from magnetar.serving.pace import distinct, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import response_class

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler, Route

_ROWS = re.compile(r"list\[(\w+)\]")


def declared(route: Route, rights: Rights) -> GuardFunction:
    """Return the guard that a route's rights describe."""
    return partial(_guard, route, rights)


async def _guard(
    route: Route, rights: Rights, request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    for need in rights.needs:
        if not await _has(need, request, checks):
            return await _refused_whole(route, rights, request, need.may.denied)
    if rights.rows is None or (rights.unless is not None and checks.on_cluster(rights.unless)):
        response = await answer(request, context)
        await _show(route, rights, response, checks)
        return response
    asked, answered = route.asked, route.answered
    assert asked is not None
    assert answered is not None
    rows = getattr(request, _list_of(asked))
    denied: list[Any] = []
    if rows or not rights.empty_is_all:
        given = [getattr(request, field) for field in rights.given]
        rows, denied = await _split(rows, rights.rows, given, asked, checks)
        setattr(request, _list_of(asked), rows)
    if rights.empty_is_all and denied and not rows:
        response = response_class(route.api_key)()
    else:
        response = await answer(request, context)
    await _show(route, rights, response, checks)
    if denied and not (rights.unless_failed and response.error_code):
        refused = _refused_rows(route, rights, denied, rights.rows.denied)
        getattr(response, _list_of(answered)).extend([row async for row in refused])
    return response


async def _allows(checks: Checks, may: May, *of: Any) -> bool:
    allowed = getattr(checks, may.check)(*of)
    return bool(await allowed if isawaitable(allowed) else allowed)


async def _has(need: Need, request: Any, checks: Checks) -> bool:
    if need.may.right is not None:
        return checks.on_cluster(need.may.right)
    value = getattr(request, need.field)
    if not need.each:
        return await _allows(checks, need.may, value or "")
    async for each in paced(value or ()):
        if not await _allows(checks, need.may, each):
            return False
    return True


async def _split(
    rows: Iterable[Any], may: May, given: list[Any], asked: PartitionRows | KeyRows, checks: Checks
) -> tuple[list[Any], list[Any]]:
    """Return the rows that are allowed, and the others."""
    yes: list[Any] = []
    no: list[Any] = []
    check, fields = getattr(checks, may.check), _fields_of(asked)
    async for row in paced(rows):
        of = [(getattr(row, field) if field else None) for field in fields] if fields else [row]
        (yes if check(*given, *of) else no).append(row)
    return yes, no


def _list_of(rows: PartitionRows | KeyRows) -> str:
    return rows.topics if isinstance(rows, PartitionRows) else rows.rows


def _fields_of(rows: PartitionRows | KeyRows) -> tuple[str, ...]:
    """Return what names a row's thing: a topic's name and, if it has one, its id, or a key; none if rows are keys."""
    if isinstance(rows, KeyRows):
        return (rows.key,) if rows.key else ()
    return (rows.name, rows.topic_id) if rows.topic_id else (rows.name,)


# What refusals look like.


def _row_class(kind: type, field: str) -> type:
    """Return the class of the rows in a field of a generated class."""
    return _row_class_in(kind.__module__, kind.__name__, field)


@cache
def _row_class_in(module: str, kind: str, field: str) -> type:
    there = sys.modules[module]
    found = _ROWS.search(getattr(there, kind).__init__.__annotations__[field])
    assert found is not None, (kind, field)
    row: type = getattr(there, found[1])
    return row


def _error(code: ErrorCode, rights: Rights) -> dict[str, Any]:
    return {"error_code": code, "error_message": sentence(code)} if rights.says else {"error_code": code}


async def _refused_whole(route: Route, rights: Rights, request: Any, code: ErrorCode) -> Any:
    kind = response_class(route.api_key)
    has_code = "error_code" in kind.__slots__
    response = kind(**_error(code, rights)) if has_code else kind()
    if rights.refuses_rows or not has_code:
        assert route.asked is not None
        assert route.answered is not None
        rows = getattr(request, _list_of(route.asked)) or ()
        refused = _refused_rows(route, rights, rows, code)
        setattr(response, _list_of(route.answered), [row async for row in refused])
    return response


async def _refused_rows(
    route: Route, rights: Rights, rows: Iterable[Any], code: ErrorCode
) -> AsyncIterator[Any]:
    """Yield an answer for each row that was asked about in vain."""
    asked, answered = route.asked, route.answered
    assert asked is not None
    assert answered is not None
    kind = _row_class(response_class(route.api_key), _list_of(answered))
    error = _error(code, rights) | dict(rights.instead)
    if isinstance(asked, PartitionRows) and isinstance(answered, PartitionRows):
        part = _row_class(kind, answered.partitions)
        named = [both for both in zip(asked[1:3], answered[1:3], strict=True) if all(both)]
        async for row in paced(rows):
            values = {theirs: getattr(row, ours) for ours, theirs in named}
            numbers = _numbers(row, asked)
            parts = [
                part(**{answered.number: number}, **error)
                async for number in paced(distinct(numbers) if rights.once else numbers)
            ]
            yield kind(**values, **{answered.partitions: parts})
        return
    assert isinstance(asked, KeyRows)
    assert isinstance(answered, KeyRows)
    if not answered.key:
        async for _ in paced(rows):
            yield kind(**error)
        return
    keys = (getattr(row, asked.key) if asked.key else row for row in rows)
    async for key in paced(distinct(keys) if rights.once else keys):
        yield kind(**{answered.key: key}, **error)


def _numbers(row: Any, asked: PartitionRows) -> Iterator[int]:
    for each in getattr(row, asked.partitions):
        yield getattr(each, asked.number) if asked.number else each


# What answers show.


async def _show(route: Route, rights: Rights, response: Any, checks: Checks) -> None:
    if rights.shows is not None and not (rights.unless is not None and checks.on_cluster(rights.unless)):
        rows = route.answered
        assert isinstance(rows, KeyRows)
        shown = [
            row
            async for row in paced(getattr(response, rows.rows))
            if await _allows(checks, rights.shows, getattr(row, rows.key))
        ]
        setattr(response, rows.rows, shown)
    if rights.operations:
        await _tell_operations(rights.operations, response, checks)
    if rights.sees:
        await _hide(route, rights, response, checks)


async def _tell_operations(of: str, response: Any, checks: Checks) -> None:
    if of == "cluster":
        if response.cluster_authorized_operations != NOT_ASKED:
            response.cluster_authorized_operations = operations.of_cluster(checks)
    elif of == "groups":
        async for row in paced(response.groups):
            if row.authorized_operations != NOT_ASKED:
                row.authorized_operations = operations.of_group(checks, row.group_id)
    else:
        async for row in paced(response.topics):
            if row.topic_authorized_operations != NOT_ASKED:
                row.topic_authorized_operations = operations.of_topic(checks, row.name)


async def _hide(route: Route, rights: Rights, response: Any, checks: Checks) -> None:
    """Answer with a code instead of each row that names a topic which the client may not see."""
    rows = route.answered
    assert isinstance(rows, KeyRows)
    assert rows.key
    kind = _row_class(type(response), rows.rows)
    paths = [path.split(".") for path in rights.sees]
    error = {"error_code": SEES_TOPIC.denied, "error_message": rights.hidden} | dict(rights.instead)
    shown = [
        row
        if all(checks.sees(name) for name in {name for path in paths for name in _named(row, path)})
        else kind(**{rows.key: getattr(row, rows.key)}, **error)
        async for row in paced(getattr(response, rows.rows))
    ]
    setattr(response, rows.rows, shown)


def _named(value: Any, path: list[str]) -> Iterator[str]:
    """Yield the names at the end of a path of fields, those that are lists meaning each of their rows."""
    if value is None:
        return
    if isinstance(value, list | tuple):
        for each in value:
            yield from _named(each, path)
    elif path:
        yield from _named(getattr(value, path[0]), path[1:])
    else:
        yield value
