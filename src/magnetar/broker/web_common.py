"""What every HTTP port of a broker answers, whatever else it serves:

GET /metrics    what Prometheus reads, of all handlers; names topics to those who may see them
GET /health     200 if storage, metadata and essential background work are well; 503 with what is not
GET /ready      200 once every handler serves everybody; 503 with what is still waited for
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.broker.auth.authentication import AuthenticationFailed, Principal
from magnetar.broker.core import Broker
from magnetar.broker.exposition import CONTENT_TYPE, exposed
from magnetar.broker.process_figures import ProcessFigures
from magnetar.broker.web import is_known

AUTH_METHOD_HEADER = "x-pulsar-auth-method-name"
"""How Pulsar's clients name their method of authentication over HTTP."""


async def principal_of(request: Request, broker: Broker) -> Principal:
    """Return who asks; raise ``AuthenticationFailed``. Where authentication is off, it is nobody."""
    authentication = broker.security.authentication
    if not authentication.enabled:
        return Principal("", "")
    principal = await authentication.of_header(
        request.headers.get("authorization", ""),
        request.scope.get("state", {}).get("certificate"),
        method=request.headers.get(AUTH_METHOD_HEADER, ""),
        address=request.client.host if request.client else "",
    )
    is_known(request.scope)
    return principal


class _Text(StreamingResponse):
    """Ends early when the client has left. Starlette's own way to see that loads the whole of anyio when it is first
    gone, for which everybody waits some 15 ms.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.stream_response(send))
        left = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, left), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending  # for what it raised
        finally:
            sending.cancel()
            left.cancel()


def metrics(broker: Broker, principal: Principal) -> Response:
    """Return the figures of the broker and its handlers, of topics those that whoever asks may see."""
    access = None
    if broker.settings.security.authenticate_metrics_endpoint:
        access = broker.security.authorization.access(principal.role)
    if broker.peers is not None:
        from magnetar.broker.all_figures import of_all_workers

        role = None if access is None else principal.role
        return _Text(of_all_workers(broker, role), media_type=CONTENT_TYPE)
    return _Text(exposed(broker.figures, access, ProcessFigures(broker)), media_type=CONTENT_TYPE)


async def troubles(broker: Broker) -> list[str]:
    """Return what keeps the broker from being well."""
    await broker.store.get("/admin/clusters")
    return await broker.troubles()


class Common:
    """An application that answers these paths itself, and leaves all others to another one."""

    def __init__(self, app: ASGIApp, broker: Broker) -> None:
        self._app = app
        self._broker = broker
        self._paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/metrics": self._metrics,
            "/metrics/": self._metrics,
            "/health": self._health,
            "/ready": self._ready,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._paths.get(scope["path"]) if scope["method"] in ("GET", "HEAD") else None
        if answer is None:
            await self._app(scope, receive, send)
        else:
            response = await answer(Request(scope, receive))
            await response(scope, receive, send)

    async def _metrics(self, request: Request) -> Response:
        security = self._broker.settings.security
        principal = Principal("", "")
        try:
            if security.authenticate_metrics_endpoint:
                principal = await principal_of(request, self._broker)
        except AuthenticationFailed as error:
            # Guessing tokens and passwords must not be quick.
            await asyncio.sleep(security.connection_failed_authentication_delay_ms / 1000)
            return PlainTextResponse(str(error), 401)
        return metrics(self._broker, principal)

    async def _health(self, request: Request) -> Response:
        return _as_status(await troubles(self._broker))

    async def _ready(self, request: Request) -> Response:
        return _as_status(self._broker.waits_for())


def _as_status(wrong: list[str]) -> Response:
    return PlainTextResponse("; ".join(wrong) or "ok", 503 if wrong else 200)
