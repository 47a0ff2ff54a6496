"""The protocol handler "admin": the ways in for operators, by HTTP from any machine and by a socket from this one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from magnetar.admin.listeners import parse_web_listeners
from magnetar.admin.server import AdminServer
from magnetar.admin.settings import AdminSettings
from magnetar.base.setting import HandlerSettings
from magnetar.node.broker import Broker
from magnetar.node.handlers import ProtocolHandler
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import with_tls
from magnetar.settings.built_in import CONSOLE, MCP, loaded
from magnetar.settings.settings import Settings
from magnetar.web.parts import WebParts

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from magnetar.admin.stuck import StuckGroups
    from magnetar.auth import Access
    from magnetar.figures.figures import FigureTable
    from magnetar.pulsar.rest.request import Address
    from magnetar.web.server import WebServer


class AdminHandler(ProtocolHandler):
    """Serves operators. It is always started, and loads what answers over HTTP only where that is served."""

    protocol_name: ClassVar[str] = "admin"
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = (AdminSettings,)

    def __init__(self) -> None:
        self._settings: Settings
        self._broker: Broker
        self._local: AdminServer
        self._web: WebServer | None = None
        self._app: asyncio.Task[ASGIApp] | None = None
        """What answers, being loaded: it takes longer than clients should wait for."""
        self._listeners: Sequence[Listener] = ()

    def initialize(self, settings: Settings) -> None:
        self._settings = settings

    def needs(self) -> Sequence[str]:
        # Tenants, namespaces, topics and subscriptions are told of in Pulsar's words, whoever uses them.
        return ("pulsar",) if self._settings.of(AdminSettings).serves_http else ()

    def listeners(self) -> Sequence[Listener]:
        return with_tls(parse_web_listeners(self._settings), self._settings)

    async def start(self, broker: Broker) -> None:
        self._broker = broker
        self._local = AdminServer(Path(self._settings.node.data_dir).absolute(), broker)
        await self._local.start()
        broker.figures.sources.append(self._figures)
        broker.figures.before.append(self._look)

    @cached_property
    def _stuck(self) -> StuckGroups:
        from magnetar.admin.stuck import StuckGroups  # loaded at the first scrape

        return StuckGroups(self._broker)

    async def _look(self) -> None:
        await self._stuck.look()

    def _figures(self, access: Access | None) -> Iterator[FigureTable | None]:
        return self._stuck(access)

    def serves(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        if listeners:
            loading = asyncio.to_thread(self._prepared)
            self._app = self._broker.background.once("loading the web service", loading)

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        if self._web is None:
            from magnetar.web.server import WebServer

            is_ready = self._app is not None and self._app.done() and self._app.exception() is None
            app = self._app.result() if self._app is not None and is_ready else self._prepared()
            self._web = WebServer(app, self._broker, answers_common=True)
        return self._web.connection()

    def _prepared(self) -> ASGIApp:
        """Return the application, with all loaded that serving it needs."""
        import prometheus_client  # noqa: F401

        import magnetar.web.server  # noqa: F401
        from magnetar.admin import inside, rest
        from magnetar.pulsar.rest import app, routes
        from magnetar.pulsar.services import PulsarServices

        services = self._broker.offers.get(PulsarServices)
        made = app.make_app(services, self._address, (*routes.ROUTES, *rest.ROUTES))
        wanted, parts = self._settings.of(AdminSettings), {}
        if wanted.mcp_enabled:
            parts["mcp"] = partial(_part, MCP, services, self._address)
        if wanted.console_enabled:
            carries_out = inside.Inside(self._broker, made)
            carries_out.answer_others()
            parts["console"] = partial(_part, CONSOLE, services, self._address, carries_out)
        return WebParts(made, parts, root="console" if wanted.console_enabled else None) if parts else made

    def _address(self) -> Address:
        from magnetar.pulsar.rest.request import Address
        from magnetar.pulsar.services import PulsarServices

        served = [*self._broker.offers.get(PulsarServices).served, *self._listeners]
        urls = {each.name: each.address for each in reversed(served)}
        return Address(*(urls.get(name, "") for name in ("PULSAR", "PULSAR_SSL", "HTTP", "HTTPS")))

    async def drain(self) -> None:
        await self._local.close()
        if self._web is not None:
            self._web.close()

    async def close(self) -> None: ...


def _part(name: str, *given: object) -> ASGIApp:
    """Load the console or MCP; a room above this one, so that it is found by its name alone."""
    return cast("Callable[..., ASGIApp]", loaded(name))(*given)
