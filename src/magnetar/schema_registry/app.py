"""The application: every route of the table, with Confluent's errors as ``{"error_code": ..., "message": ...}``."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path

from magnetar.auth.authentication import AuthenticationFailed
from magnetar.base.audit import Act, Actor, Outcome, note
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.schema_registry.endpoints import ROUTES, RegistryRoute, Text
from magnetar.schema_registry.errors import InvalidSchema, RegistryError
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.request import RegistryRequest, RequiredGrant, principal_of
from magnetar.schema_registry.work import TooComplex
from magnetar.schema_registry.workshop import Locks, Workshop
from magnetar.web.http import BodyTooLarge, body_of, is_known

_TYPE = "application/vnd.schemaregistry.v1+json"
_READS = frozenset({"GET", "HEAD"})
_SHOWN_BYTES = 1000
_log = logging.getLogger("magnetar.schema_registry")


class App:
    """The ASGI application."""

    def __init__(self, broker: Broker, registries: Registries, workshop: Workshop) -> None:
        self._broker = broker
        self._registries = registries
        self._locks = Locks()
        self._workshop = workshop
        self._table = [(compile_path(route.path)[0], route) for route in ROUTES]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        known: dict[str, RegistryRequest] = {}
        failure: Exception | None = None
        try:
            response = _response(await self._answer(request, known))
        except ClientDisconnect:
            raise
        except Exception as error:
            response, failure = _refused(error, request), error
        if request.method not in _READS:
            self._note(request, known.get("ask"), response.status_code, failure)
        await response(scope, receive, send)

    def _note(
        self, request: Request, ask: RegistryRequest | None, status: int, failure: Exception | None
    ) -> None:
        """Write the audit line of what changes something, whether or not it was done."""
        try:
            route, path = self._find(request)
        except RegistryError:
            return
        if route.needs in (RequiredGrant.nothing, RequiredGrant.read):
            return
        subject = path.get("subject", "")
        actor = Actor(
            "(not authenticated)" if ask is None else ask.principal.role, "schema-registry",
            request.client.host if request.client else "", request.headers.get("user-agent", ""),
            proxy="" if ask is None else ask.principal.proxy, request=request.headers.get("x-request-id", ""),
        )  # fmt: skip
        outcome = Outcome.of_status(status)
        asked: dict[str, Any] = {name: each for name, each in path.items() if name != "subject"}
        asked |= dict(request.query_params)
        if ask is not None and ask.body:
            asked["body"] = bytes(ask.body[:_SHOWN_BYTES]).decode("utf-8", "replace")
        error = "" if failure is None else str(failure)
        kind = "subject" if subject else "registry"
        note(actor, Act(f"{route.method} {route.path}", kind, subject, outcome, error, asked=asked or None))

    async def _answer(self, request: Request, known: dict[str, RegistryRequest]) -> Any:
        certificate = request.scope.get("state", {}).get("certificate")
        try:
            principal, home = await principal_of(
                self._broker, request.headers, certificate, request.client.host if request.client else ""
            )
        except AuthenticationFailed:
            # Guessing tokens and passwords must not be quick.
            await asyncio.sleep(
                self._broker.settings.security.connection_failed_authentication_delay_ms / 1000
            )
            raise
        is_known(request.scope)
        route, path = self._find(request)
        ask = RegistryRequest(
            path,
            request.query_params,
            b"",
            await self._registries.of(home.partition("/")[0]),
            self._locks,
            self._workshop,
            self._broker,
            principal,
            home,
        )
        known["ask"] = ask
        ask.check(route.needs)
        ask.body = await body_of(request)
        return await route.endpoint(ask)

    def _find(self, request: Request) -> tuple[RegistryRoute, Mapping[str, str]]:
        # A subject may hold slashes, escaped: what counts are the slashes that were sent as such.
        raw = request.scope.get("raw_path") or request.url.path.encode()
        path = raw.decode("ascii", "replace").partition("?")[0]
        path = path.rstrip("/") or "/"
        method = "GET" if request.method == "HEAD" else request.method
        others = False
        for pattern, route in self._table:
            match = pattern.match(path)
            if match is None or any("/" in value for value in match.groups()):
                continue
            if route.method == method:
                return route, {name: unquote(value) for name, value in match.groupdict().items()}
            others = True
        raise (
            RegistryError(405, "HTTP 405 Method Not Allowed")
            if others
            else RegistryError(404, "HTTP 404 Not Found")
        )


def _response(answer: Any) -> Response:
    text = answer.text if isinstance(answer, Text) else json.dumps(answer, separators=(",", ":"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type=_TYPE)


def _refused(error: Exception, request: Request) -> Response:
    headers = {}
    if isinstance(error, TooComplex):
        error = InvalidSchema(str(error))
    if isinstance(error, RegistryError):
        status, code, message = error.status, error.code, str(error)
    elif isinstance(error, BodyTooLarge):
        status, code, message = 413, 413, str(error)
    elif isinstance(error, AuthenticationFailed):
        status, code, message = 401, 401, "Unauthorized"
        headers["WWW-Authenticate"] = 'Basic realm="magnetar"'
        _log.warning("a client is not let in: %s", error)
    else:
        status, code, message = 500, 50001, f"Error in the backend data store: {error}"
        if not isinstance(error, MetadataError):
            code, message = 500, f"Internal error: {type(error).__name__}"
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    body = json.dumps({"error_code": code, "message": message}).encode()
    return Response(body, status, headers, _TYPE)
