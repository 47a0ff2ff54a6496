"""The way into the console: who asks, which page, as HTML or JSON, and headers that bind the browser.

Browsers must run no script (Content-Security-Policy), but for the one file of the page that follows records. Another
site's page can neither frame these nor read them; what such pages send, `magnetar.web.pages` refuses before.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from magnetar import __version__
from magnetar.admin import rest
from magnetar.admin.errors import AdminError
from magnetar.admin.inside import Inside
from magnetar.admin.rest import status_of
from magnetar.auth.authentication import BASIC, TOKEN, AuthenticationFailed, Principal
from magnetar.cluster.ownership import NotOwned
from magnetar.console import tail
from magnetar.console.actions.app import PREFIX, ActionPages, form_cookie
from magnetar.console.page import ConsolePage
from magnetar.console.rendering import environment, static_files
from magnetar.console.session import (
    COOKIE,
    MAX_COOKIE_BYTES,
    MAX_FORM_BYTES,
    Sessions,
    header_of_form,
    own_place,
    set_cookie,
)
from magnetar.console.table import PAGES
from magnetar.pulsar.rest.app import make_app
from magnetar.pulsar.rest.refusals import refusal_of
from magnetar.pulsar.rest.request import Address, AdminRequest, RestError, address_of
from magnetar.pulsar.rest.routes import ROUTES
from magnetar.pulsar.services import PulsarServices
from magnetar.web.common import principal_of
from magnetar.web.http import body_of

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_POLICY_OF_SCRIPT = f"{_POLICY}; script-src 'self'; connect-src 'self'"
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would not say whose page sends the login
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer."""
_LOGIN, _LOGOUT = "login", "logout"
_REASONS = {400: "What was asked", 401: "Log in", 403: "Not allowed", 404: "Not found", 503: "Not now"}


def make_console(
    services: PulsarServices, address: Callable[[], Address], inside: Inside | None = None
) -> Console:
    """Return the ASGI application for ``/console`` and what lies below it, and for ``/``.

    ``inside`` carries out what its forms are filled in for.
    """
    if inside is None:
        app = make_app(services, address, (*ROUTES, *rest.ROUTES))
        inside = Inside(services.broker, app)
    return Console(services, address, inside)


class Console:
    """Answers browsers and programs, each page by its table of contents."""

    def __init__(self, services: PulsarServices, address: Callable[[], Address], inside: Inside) -> None:
        self._services = services
        self._address = address
        self._sessions = Sessions(services.broker.store)
        self.actions = ActionPages(services, address, self._sessions, inside)
        self._templates = environment()
        self._static = static_files()
        self._pages = {page.name: page for page in PAGES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path == "/":
            return RedirectResponse("/console", 307)
        name = path.removeprefix("/console").strip("/")
        if request.method == "POST" and name in (_LOGIN, _LOGOUT):
            return await (self._log_in(request) if name == _LOGIN else self._log_out(request))
        is_action = name.startswith(PREFIX)
        if request.method not in ("GET", "HEAD") and not (is_action and request.method == "POST"):
            return Response("this page only shows\n", 405, {"Allow": "GET, HEAD"}, "text/plain")
        if name in self._static:
            content, kind = self._static[name]
            return Response(content, media_type=kind, headers={"Cache-Control": "max-age=300, private"})
        if name == _LOGIN:
            return await self._login_form(own_place(request.query_params.get("next", "")))
        as_json = name.endswith(".json")
        page = self._pages.get("" if name == "overview.json" else name.removesuffix(".json"))
        try:
            if is_action:
                return await self._act(request, name.removeprefix(PREFIX))
            if name == tail.NAME:
                host = request.client.host if request.client else ""
                return await tail.events(lambda: self._ask(request), host)
            if page is None:
                raise RestError(404, f"there is no page {path}")
            ask = await self._ask(request)
            facts = await page.facts(ask)
            if isinstance(facts, Response):
                return facts
            return await self._shown(request, page, ask, facts, as_json=as_json)
        except ClientDisconnect:
            raise
        except AuthenticationFailed as error:
            return await self._not_known(request, error, as_json=as_json)
        except NotOwned as error:
            return self._elsewhere(request, error)
        except AdminError as error:
            reason = f"{error} {error.next_step}".strip()
            return await self._refused(request, status_of(error), reason, as_json=as_json)
        except Exception as error:
            status, reason = refusal_of(error, f"{request.method} {path}")
            return await self._refused(request, status, reason, as_json=as_json)

    async def _act(self, request: Request, name: str) -> Response:
        """Answer with a form, or with what became of one."""
        shown = await self.actions.answer(request, name, await self._principal(request))
        response = await self._html("action.html", self._common() | shown.content, shown.status)
        if shown.cookie:
            response.headers["Set-Cookie"] = form_cookie(shown.cookie, secure=request.url.scheme == "https")
        return response

    async def _ask(self, request: Request) -> AdminRequest:
        principal = await self._principal(request)
        return AdminRequest(
            request.path_params,
            request.query_params,
            request.headers,
            b"",
            self._services,
            principal,
            self._address(),
            changes=False,
        )

    # Who asks.

    async def _principal(self, request: Request) -> Principal:
        cookie = request.cookies.get(COOKIE, "")
        if cookie and "authorization" not in request.headers:
            header = await self._sessions.opened(cookie)
            if header:
                return await principal_of(_with_header(request, header), self._services.broker)
        return await principal_of(request, self._services.broker)

    async def _log_in(self, request: Request) -> Response:
        if int(request.headers.get("content-length") or MAX_FORM_BYTES) > MAX_FORM_BYTES:
            return await self._refused(request, 413, "the form is too large", as_json=False)
        place = own_place(request.query_params.get("next", ""))
        header = header_of_form(await body_of(request), self._methods)
        if not header:
            return await self._login_form(place, "Enter a user and a password, or a token.", 401)
        try:
            await principal_of(_with_header(request, header), self._services.broker)
        except AuthenticationFailed as error:
            await self._slowly()
            return await self._login_form(place, str(error), 401)
        sealed = await self._sessions.sealed(header)
        if len(sealed) > MAX_COOKIE_BYTES:
            said = "The token is too long for a cookie: send it as Authorization: Bearer instead."
            return await self._login_form(place, said, 401)
        response = RedirectResponse(place, 303)
        response.headers["Set-Cookie"] = set_cookie(sealed, secure=request.url.scheme == "https")
        return response

    async def _log_out(self, request: Request) -> Response:
        response = RedirectResponse("/console/login", 303)
        response.headers["Set-Cookie"] = set_cookie("", secure=request.url.scheme == "https", lasts_s=0)
        return response

    async def _slowly(self) -> None:
        """Guessing tokens and passwords must not be quick."""
        security = self._services.broker.settings.security
        await asyncio.sleep(security.connection_failed_authentication_delay_ms / 1000)

    async def _not_known(self, request: Request, error: AuthenticationFailed, *, as_json: bool) -> Response:
        shows_something = "authorization" in request.headers or COOKIE in request.cookies
        if shows_something:
            await self._slowly()
        is_browser = "text/html" in request.headers.get("accept", "")
        if as_json or not is_browser or "authorization" in request.headers:
            return await self._refused(request, 401, str(error), as_json=as_json)
        place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/console/login?next={quote(place, safe='')}", 303)

    @property
    def _methods(self) -> tuple[str, ...]:
        return self._services.broker.security.authentication.methods

    # What is answered.

    async def _shown(
        self, request: Request, page: ConsolePage, ask: AdminRequest, facts: dict[str, Any], *, as_json: bool
    ) -> Response:
        if as_json:
            text = await asyncio.to_thread(_json, facts)
            return Response(text, media_type="application/json")
        state = defaultdict(str, request.query_params)
        query = f"?{request.url.query}" if request.url.query else ""
        content = {
            **self._common(),
            "page": page,
            "facts": facts,
            "state": state,
            "role": ask.principal.role,
            "commands": page.commands(ask, facts),
            "actions": self.actions.links(page.name, ask, facts),
            "as_json": f"/console/{page.name or 'overview'}.json{query}",
            "refresh": whole_seconds(state.get("refresh", "")),
        }
        response = await self._html(page.template, content)
        if page.has_script:
            response.headers["Content-Security-Policy"] = _POLICY_OF_SCRIPT
        return response

    async def _login_form(self, place: str, said: str = "", status: int = 200) -> Response:
        methods = self._methods
        content = {
            "place": place,
            "said": said,
            "by_password": BASIC in methods,
            "by_token": TOKEN in methods,
            "is_open": not self._services.broker.security.authentication.enabled,
        }
        return await self._html("login.html", self._common() | content, status)

    async def _refused(self, request: Request, status: int, reason: str, *, as_json: bool) -> Response:
        if as_json:
            return Response(_json({"reason": reason}), status, media_type="application/json")
        content = {"title": _REASONS.get(status, "Something failed"), "reason": reason, "status": status}
        return await self._html("refused.html", self._common() | content, status)

    def _elsewhere(self, request: Request, error: NotOwned) -> Response:
        """Send a browser to the broker that has what it asks about; 503 while no broker has it."""
        ownership, owner = self._services.broker.cluster.ownership, error.owner
        found = None if owner is None else address_of(ownership, owner.node_id, self._address())
        root = "" if found is None else found.http or found.https
        if not root:
            return Response(f"{error}\n", 503, media_type="text/plain")
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{root}{request.url.path}{query}", 307)

    def _common(self) -> dict[str, Any]:
        return {
            "menu": [each for each in PAGES if each.in_menu],
            "version": __version__,
            "cluster": self._services.broker.cluster.ownership.cluster,
            "knows_clients": self._services.broker.security.authentication.enabled,
            "role": "",
            "page": None,
            "actions": (),
            "refresh": 0,
        }

    async def _html(self, template: str, content: dict[str, Any], status: int = 200) -> Response:
        # A thread renders: a page of a thousand rows takes longer than others should wait.
        text = await asyncio.to_thread(lambda: self._templates.get_template(template).render(content))
        return Response(text.encode("utf-8", "backslashreplace"), status, media_type="text/html")


def whole_seconds(given: str) -> int:
    """Return after how many seconds a page is asked for again: 0, or 2 and more."""
    return min(max(int(given), 2), 3600) if given.isascii() and given.isdigit() else 0


def _json(facts: dict[str, Any]) -> bytes:
    # Only ASCII: a terminal that this is read on obeys nothing in it.
    return json.dumps(facts, indent=1, default=str).encode() + b"\n"


def _with_header(request: Request, header: str) -> Request:
    scope = dict(request.scope)
    kept = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    scope["headers"] = [*kept, (b"authorization", header.encode("latin-1", "replace"))]
    return Request(scope, request.receive)
