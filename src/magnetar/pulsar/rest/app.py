"""The application: every route of the table with Pulsar's errors, and the OpenAPI page that describes them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_plus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute

from magnetar.auth.authentication import AuthenticationFailed, Principal
from magnetar.base.slices import sliced
from magnetar.cluster.ownership import NotOwned
from magnetar.pulsar.rest.audited import RestAct, changes
from magnetar.pulsar.rest.everywhere import answer_others
from magnetar.pulsar.rest.refusals import refusal_of
from magnetar.pulsar.rest.request import (
    INSIDE,
    Address,
    AdminRequest,
    InsideCaller,
    Reply,
    RequiredLevel,
    RestRoute,
    address_of,
    check,
)
from magnetar.pulsar.rest.routes import ROUTES
from magnetar.pulsar.services import PulsarServices
from magnetar.web.common import principal_of
from magnetar.web.http import body_of, say_with_status

_METHOD_ORDER = ("GET", "HEAD", "PUT", "POST", "DELETE")
_VALUE = re.compile(r"\{(\w+)(?::\w+)?\}")


def make_app(
    services: PulsarServices, address: Callable[[], Address], routes: tuple[RestRoute, ...] = ROUTES
) -> Starlette:
    """Return the ASGI application. ``address`` is asked with each request, for ports may be chosen late."""
    answer_others(services, address)
    by_path: dict[str, dict[str, RestRoute]] = {}
    for route in routes:
        assert route.method not in by_path.setdefault(route.full_path, {}), (
            f"{route.full_path} is there twice"
        )
        by_path[route.full_path][route.method] = route
    page = openapi(routes)

    async def describe(request: Request) -> Response:
        return await _as_response(page)

    paths: list[StarletteRoute] = [
        _Path(path, _View(table, services, address)) for path, table in by_path.items()
    ]
    for place in ("/openapi.json", "/admin/v2/openapi.json"):
        paths.append(StarletteRoute(place, describe))
    return _App(routes=paths, exception_handlers={HTTPException: _not_found})


class _App(Starlette):
    """Names in paths are encoded as Java's ``URLEncoder`` does, so that a plus is a space."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raw = scope.get("raw_path") or b""
        if b"+" in raw:
            scope = {**scope, "path": unquote_plus(raw.decode("ascii"))}
        await super().__call__(scope, receive, send)


class _Path(StarletteRoute):
    """A path gives way to another that knows the method: a subscription may be called ``subscription``."""

    def __init__(self, path: str, view: _View) -> None:
        super().__init__(path, view)
        self._view = view
        self._begins = path.partition("{")[0]

    def matches(self, scope: Any) -> tuple[Match, Any]:
        if not scope["path"].startswith(self._begins):
            return (
                Match.NONE,
                {},
            )  # which most paths are: a quarter of the time of an expression that does not match
        match, child = super().matches(scope)
        serves = match is not Match.FULL or self._view.route(scope["method"]) is not None
        return match if serves else Match.PARTIAL, child


class _View:
    """All methods of one path, as an ASGI application: Starlette then leaves the choice of the method to us."""

    def __init__(
        self, table: Mapping[str, RestRoute], services: PulsarServices, address: Callable[[], Address]
    ) -> None:
        self._table = table
        self._services = services
        self._address = address

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    def route(self, method: str) -> RestRoute | None:
        """Return what serves a method here, if anything does."""
        return self._table.get("GET" if method == "HEAD" and "HEAD" not in self._table else method)

    async def _answer(self, request: Request) -> Response:
        route = self.route(request.method)
        if route is None:
            there_are = [each for each in _METHOD_ORDER if each in self._table]
            return _Refusal(
                405,
                f"{request.method} is not served here: {', '.join(there_are)}",
                {"Allow": ", ".join(there_are)},
            )
        if not changes(route):
            return await self._carried_out(request, route, None)
        act = RestAct(request, route, self._services)
        response = await self._carried_out(request, route, act)
        act.ends(response.status_code, response.reason if isinstance(response, _Refusal) else "")
        return response

    async def _carried_out(self, request: Request, route: RestRoute, act: RestAct | None) -> Response:
        try:
            ask = AdminRequest(
                request.path_params,
                request.query_params,
                request.headers,
                b"",
                self._services,
                await _principal(request, self._services, route.needs),
                self._address(),
                route.domain,
            )
            if act is not None:
                act.begins(ask)
            check(ask, route)
            ask.body = await body_of(request)
            await _learn(ask)
            return await _as_response(await route.endpoint(ask))
        except ClientDisconnect:
            raise
        except AuthenticationFailed as error:
            # Guessing tokens and passwords must not be quick.
            delay_ms = self._services.broker.settings.security.connection_failed_authentication_delay_ms
            await asyncio.sleep(delay_ms / 1000)
            return _refused(error, request)
        except NotOwned as error:
            return self._elsewhere(error, request)
        except Exception as error:
            return _refused(error, request)

    def _elsewhere(self, error: NotOwned, request: Request) -> Response:
        """Send a client to the broker that has what it asks about, as Pulsar does; 503 while nobody has it."""
        ownership, owner = self._services.broker.cluster.ownership, error.owner
        caller: InsideCaller | None = request.scope.get(INSIDE)
        if caller is not None:
            caller.moved_to = None if owner is None else owner.node_id
        address = None if owner is None else address_of(ownership, owner.node_id, self._address())
        if address is None or not address.broker:
            return _Refusal(503, str(error))
        where = f"{address.http or address.https}{request.url.path}"
        query = f"?{request.url.query}" if request.url.query else ""
        return _Refusal(307, str(error), {"Location": where + query})


async def _learn(ask: AdminRequest) -> None:
    """Know of what a path names, where this broker does not yet: its client may have made it through another one."""
    if "topic" in ask.path:
        await ask.services.topics.known(ask.topic)
    elif "namespace" in ask.path and ask.namespace not in ask.services.broker.namespaces:
        await ask.services.broker.learn(ask.namespace)


async def _principal(request: Request, services: PulsarServices, needs: RequiredLevel) -> Principal:
    caller: InsideCaller | None = request.scope.get(INSIDE)
    if caller is not None:
        return caller.principal
    security = services.broker.settings.security
    is_open = needs is RequiredLevel.nobody or (
        needs is RequiredLevel.metrics and not security.authenticate_metrics_endpoint
    )
    return Principal("", "") if is_open else await principal_of(request, services.broker)


async def _as_response(answer: Any) -> Response:
    if answer is None:
        return Response(status_code=204)
    if isinstance(answer, Response):
        return answer
    if isinstance(answer, Reply):
        response = Response(answer.body, answer.status, media_type=answer.content_type)
        # Starlette's own way would write names in lower case, and Java's admin client compares them as they are.
        response.raw_headers += [
            (name.encode("latin-1"), text.encode("latin-1")) for name, text in answer.headers.items()
        ]
        return response
    return Response(await _written(answer), media_type="application/json")


async def _written(answer: Any, levels: int = 2) -> str:
    """Return an answer as JSON. What has many items, or has it within, is written in slices: whoever asks for the
    stats of ten thousand partitions waits for them, nobody else.
    """
    if levels and isinstance(answer, dict) and all(isinstance(key, str) for key in answer):
        items = [
            f"{_dumped(key)}:{await _written(item, levels - 1)}" async for key, item in sliced(answer.items())
        ]
        return f"{{{','.join(items)}}}"
    if levels and isinstance(answer, list):
        return f"[{','.join([_dumped(item) async for item in sliced(answer)])}]"
    return _dumped(answer)


_dumped = json.JSONEncoder(separators=(",", ":")).encode


def _refused(error: Exception, request: Request) -> Response:
    return _Refusal(*refusal_of(error, f"{request.method} {request.url.path}"))


class _Refusal(Response):
    """Says why in its body, and behind its status, where Pulsar's clients look that look up topics by HTTP."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(
            json.dumps({"reason": reason}).encode(), status, dict(headers or {}), "application/json"
        )
        self.reason = reason

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.status_code >= 400:
            say_with_status(scope, self.reason)
        await super().__call__(scope, receive, send)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _Refusal(404, f"{request.url.path} is not served; /openapi.json tells what is")
    return _Refusal(error.status_code, str(error.detail))


def openapi(routes: tuple[RestRoute, ...]) -> dict[str, Any]:
    """Describe the routes as OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for route in routes:
        names = _VALUE.findall(route.full_path)
        paths.setdefault(_VALUE.sub(r"{\1}", route.full_path), {})[route.method.lower()] = {
            "summary": route.summary,
            "description": f"Needs: {route.needs}.",
            "operationId": f"{route.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.full_path)}",
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ],
            "responses": {
                "200": {"description": "Done; the answer, if there is one"},
                "204": {"description": "Done"},
                "default": {
                    "description": "Refused",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
                },
            },
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Magnetar: Pulsar's admin REST", "version": "v2"},
        "paths": paths,
        "components": {
            "schemas": {"Refusal": {"type": "object", "properties": {"reason": {"type": "string"}}}}
        },
    }
