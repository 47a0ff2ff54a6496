"""What every HTTP port of a broker answers, whatever else it serves:

GET /metrics    what Prometheus reads, of all handlers; names topics to those who may see them
GET /health     200 if storage, metadata and essential background work are well; 503 with what is not
                200 and "degraded: ..." where a restart would help nothing and readers are served: a disk without room
                for producers, a slow journal, a clock that jumped, a certificate that ends soon
GET /ready      200 once every handler serves everybody; 503 with what is still waited for; degraded as above
GET /livez      200 unless only a restart can help; /healthz and /readyz are /health and /ready, as Kubernetes has them
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from magnetar.auth.authentication import AuthenticationFailed, Principal
from magnetar.auth.proxied import ORIGINAL_PRINCIPAL_HEADER, behind
from magnetar.figures.exposition import CONTENT_TYPE, exposed
from magnetar.node.broker import Broker
from magnetar.node.process_figures import ProcessFigures
from magnetar.web.http import is_known

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
    return behind(principal, request.headers.get(ORIGINAL_PRINCIPAL_HEADER, ""), broker.settings.security)


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
        access = broker.security.authorization.access_of(principal)
    if broker.cluster.peers is not None:
        from magnetar.node.all_figures import of_all_workers

        asker = None if access is None else principal
        return _Text(of_all_workers(broker, asker), media_type=CONTENT_TYPE)
    return _Text(exposed(broker.figures, access, ProcessFigures(broker)), media_type=CONTENT_TYPE)


def well(broker: Broker) -> str:
    """Return the text of an answer that nothing is wrong: what is degraded all the same, or "ok"."""
    degraded = broker.health.conditions.texts()
    return f"degraded: {'; '.join(degraded)}" if degraded else "ok"


class Common:
    """An application that answers these paths itself, and leaves all others to another one."""

    def __init__(self, app: ASGIApp, broker: Broker) -> None:
        self._app = app
        self._broker = broker
        self._paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/metrics": self._metrics,
            "/metrics/": self._metrics,
            "/health": self._health,
            "/healthz": self._health,
            "/ready": self._ready,
            "/readyz": self._ready,
            "/livez": self._live,
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
        return _as_status(await self._broker.troubles(), self._broker)

    async def _ready(self, request: Request) -> Response:
        return _as_status(self._broker.waits_for(), self._broker)

    async def _live(self, request: Request) -> Response:
        failed = self._broker.engine.failed
        return PlainTextResponse("ok" if failed is None else str(failed), 200 if failed is None else 503)


def _as_status(wrong: list[str], broker: Broker) -> Response:
    if wrong:
        return PlainTextResponse("; ".join(wrong), 503)
    return PlainTextResponse(well(broker))
