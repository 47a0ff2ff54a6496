"""The way to an action: its form, the checks of what comes back, and what became of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from starlette.requests import Request

from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.inside import Inside
from magnetar.admin.rest import status_of
from magnetar.admin.settings import AdminSettings
from magnetar.auth.authentication import Principal
from magnetar.base.errors import BrokerError
from magnetar.cluster.ownership import NotOwned
from magnetar.console.actions.action import ConsoleAction, Doing
from magnetar.console.actions.forms import (
    MAX_FORM_BYTES,
    FormTokens,
    fields_of,
    is_own_form,
    login_of,
)
from magnetar.console.actions.table import ACTIONS
from magnetar.console.session import COOKIE, Sessions
from magnetar.pulsar.rest.refusals import refusal_of
from magnetar.pulsar.rest.request import Address, AdminRequest, InsideCaller, RestError
from magnetar.pulsar.services import PulsarServices
from magnetar.web.http import body_of

PREFIX = "act/"
FORM_COOKIE = "magnetar_console_form"
"""What binds forms of browsers that do not log in."""
DOOR = "console"
_AT_ONCE = 2
_READ_ONLY = "this console only shows: console.read.only=false gives it forms that change something"


class ActionShown(NamedTuple):
    """The content of an action's page."""

    content: dict[str, Any]
    status: int = 200
    cookie: str = ""


class ActionPages:
    """All actions of one broker's console."""

    def __init__(
        self, services: PulsarServices, address: Callable[[], Address], sessions: Sessions, inside: Inside
    ) -> None:
        self._services = services
        self._address = address
        self._inside = inside
        self.tokens = FormTokens(sessions, services.broker.store)
        self._actions = {each.name: each for each in ACTIONS}
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    @property
    def is_read_only(self) -> bool:
        return self._services.broker.settings.of(AdminSettings).console_read_only

    async def answer(self, request: Request, name: str, principal: Principal) -> ActionShown:
        """Return a form, or what became of one; raise ``RestError`` and what the admin REST raises."""
        action = self._actions.get(name)
        if action is None:
            raise RestError(404, f"there is no page {request.url.path}")
        if self.is_read_only:
            raise RestError(403, _READ_ONLY)
        if request.method == "POST":
            return await self._sent(request, action, principal)
        doing = self._doing(request, principal, request.query_params)
        self._check(action, doing)
        return await self._form(request, action, doing, {})

    async def _sent(self, request: Request, action: ConsoleAction, principal: Principal) -> ActionShown:
        if not is_own_form(request.headers):
            raise RestError(403, "only forms of these pages are taken here; programs have the admin REST")
        if int(request.headers.get("content-length") or 0) > MAX_FORM_BYTES:
            raise RestError(
                413, f"a form has at most {MAX_FORM_BYTES >> 20} MB; 'magnetar produce' sends more"
            )
        given = fields_of(await body_of(request))
        token_id = await self.tokens.checked(given.pop("token", ""), action.name, self._login(request))
        step = given.pop("step", "do")
        doing = self._doing(request, principal, given)
        self._check(action, doing)
        if step != "preview" or action.preview is None:
            await self.tokens.use(token_id)
        try:
            if step == "preview" and action.preview is not None:
                return await self._form(request, action, doing, {"preview": await action.preview(doing)})
            self._confirmed(action, doing)
            told = await action.run(doing)
        except (AdminError, RestError, BrokerError) as error:
            problem, next_step, status = _words(error, action)
            return await self._form(
                request, action, doing, {"problem": problem, "next_step": next_step}, status
            )
        return ActionShown({**self._content(action, doing), "done": told})

    def _check(self, action: ConsoleAction, doing: Doing) -> None:
        missing = next((key for key in action.keys if not doing.text(key)), None)
        if missing is not None:
            raise RestError(400, f"{missing}=NAME is missing")
        if not action.allowed(doing):
            role = doing.ask.principal.role or "anonymous"
            raise RestError(403, f"{role} may not do this: {action.title[0].lower()}{action.title[1:]}")

    @staticmethod
    def _confirmed(action: ConsoleAction, doing: Doing) -> None:
        if action.confirms and doing.given.get("confirm", "").strip() != doing.text(action.confirms):
            raise Invalid(
                "what you typed is another name; nothing was changed",
                f"Type the name of the {action.confirms} as it stands above.",
            )

    async def _form(
        self,
        request: Request,
        action: ConsoleAction,
        doing: Doing,
        more: Mapping[str, Any],
        status: int = 200,
    ) -> ActionShown:
        login, cookie = self._login(request), ""
        if not login:
            cookie = secrets.token_urlsafe(24)
            login = login_of(cookie)
        content = {
            **self._content(action, doing),
            "fields": await action.fields(doing),
            "token": await self.tokens.made(action.name, login),
            **more,
        }
        return ActionShown(content, status, cookie)

    def _content(self, action: ConsoleAction, doing: Doing) -> dict[str, Any]:
        commands: Sequence[Any] = ()
        with suppress(AdminError, RestError, BrokerError):  # of a form that is not filled in yet
            commands = action.commands(doing)
        return {
            "action": action,
            "title": action.title,
            "about": {key: doing.text(key) for key in action.keys},
            "given": dict(doing.given),
            "fields": (),
            "token": "",
            "commands": commands,
            "preview": None,
            "done": None,
            "problem": "",
            "next_step": "",
            "role": doing.ask.principal.role,
        }

    def _doing(self, request: Request, principal: Principal, given: Mapping[str, str]) -> Doing:
        caller = InsideCaller(
            principal,
            DOOR,
            request.client.host if request.client else "",
            request.headers.get("user-agent", ""),
        )
        return Doing(self._ask(request, principal), given, self._inside, caller, self._at_once)

    def _ask(self, request: Request, principal: Principal) -> AdminRequest:
        return AdminRequest(
            request.path_params,
            request.query_params,
            request.headers,
            b"",
            self._services,
            principal,
            self._address(),
        )

    def _login(self, request: Request) -> str:
        """Return what stands for what a client showed; empty for one that has shown nothing."""
        shown = (
            request.headers.get("authorization", ""),
            request.cookies.get(COOKIE, ""),
            request.cookies.get(FORM_COOKIE, ""),
        )
        return login_of(shown[0] or shown[1] or shown[2]) if any(shown) else ""

    def links(self, page: str, ask: AdminRequest, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the actions that a client may do about what a page shows: titles, and addresses of forms."""
        if self.is_read_only:
            return []
        about = {
            **ask.query,
            **{name: str(value) for name, value in facts.items() if isinstance(value, str | int)},
        }
        doing = Doing(ask, about, self._inside, InsideCaller(ask.principal, DOOR), self._at_once)
        found = []
        for action in ACTIONS:
            if page not in action.pages or not action.fits(facts):
                continue
            if not all(about.get(key) for key in action.keys):
                continue
            with suppress(AdminError, RestError, BrokerError):
                if action.allowed(doing):
                    found.append((action.title, action.link(about)))
        return found


def form_cookie(value: str, *, secure: bool) -> str:
    """Return the header that binds a browser to its forms."""
    only_tls = "; Secure" if secure else ""
    return f"{FORM_COOKIE}={value}; Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict{only_tls}"


def _words(error: Exception, action: ConsoleAction) -> tuple[str, str, int]:
    """Return what went wrong, what to do about it, and the status."""
    if isinstance(error, NotOwned):
        where = "no broker" if error.owner is None else f"broker {error.owner.node_id}"
        return f"{where} has that partition", "Open this page at the console of that broker.", 503
    if isinstance(error, AdminError):
        return str(error), error.next_step, status_of(error)
    status, reason = refusal_of(error, action.title)
    return reason, "", status
