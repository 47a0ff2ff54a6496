"""A whole proxy in one process: listeners as brokers have them, and what answers on each. Nothing is kept on disk."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from magnetar.auth.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S, kafka_tls
from magnetar.base.errors import InvalidConfig
from magnetar.client.security import ClientSecurity
from magnetar.proxy.figures import ProxyFigures
from magnetar.proxy.settings import ProxySettings
from magnetar.serving.connections import Connections
from magnetar.serving.listeners import CannotListen, Listener
from magnetar.serving.memory import MemoryBudget
from magnetar.settings.settings import Settings

_STRANGERS_PART = 8
_log = logging.getLogger("magnetar.proxy")


class ProxyService:
    """One proxy. ``served`` has the listeners' ports once it has started."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.served: dict[str, tuple[Listener, ...]] = {}
        self.figures = ProxyFigures()
        budget = settings.connections.memory_requests_bytes
        self.memory = MemoryBudget(budget, budget // _STRANGERS_PART)
        self.connections = Connections(lambda: settings)
        self._servers: list[asyncio.Server] = []
        self._close: list[Callable[[], None]] = []
        self.figures.gauges += [
            ("connections", "Connections of clients.", lambda: self.connections.count),
            ("held_bytes", "What clients make the proxy keep.", lambda: self.memory.held_bytes),
        ]

    async def start(self) -> None:
        """Open what the settings ask for; raise what stands against it, with nothing left running."""
        own = self.settings.of(ProxySettings)
        try:
            if own.proxy_bootstrap_servers:
                await self._serve_kafka()
            if own.broker_service_url:
                await self._serve_pulsar()
            if not self.served:
                raise InvalidConfig(
                    "a proxy needs to know brokers: set proxy.bootstrap.servers, broker.service.url or both"
                )
            await self._serve_http()
        except BaseException:
            self.close()
            raise

    async def _serve_kafka(self) -> None:
        from magnetar.kafka.listeners import parse_listeners
        from magnetar.proxy.kafka.server import KafkaProxy

        proxy = KafkaProxy(self.settings, self._security(), self.memory, self.connections, self.figures.kafka)
        proxy.start()
        self._close.append(proxy.close)
        listeners = [
            replace(each, context=kafka_tls(self.settings.at(each.name).security, each.client_auth))
            if each.tls
            else each
            for each in parse_listeners(self.settings, passes_logins_on=True)
        ]
        await self._listen("kafka", listeners, proxy.connection)

    async def _serve_pulsar(self) -> None:
        from magnetar.proxy.pulsar.server import PulsarProxy
        from magnetar.pulsar.listeners import parse_pulsar_listeners
        from magnetar.serving.url_listeners import with_tls

        try:
            proxy = PulsarProxy(
                self.settings, self.memory, self.connections, self.figures.pulsar, self._security().context
            )
        except ValueError as error:
            raise InvalidConfig(f"Invalid value for configuration broker.service.url: {error}") from None
        proxy.start()
        self._close.append(proxy.close)
        listeners = with_tls(parse_pulsar_listeners(self.settings), self.settings)
        await self._listen("pulsar", listeners, proxy.connection)

    async def _serve_http(self) -> None:
        served = self.settings.value("http_listeners")
        assert isinstance(served, tuple)
        if not served:
            return
        from magnetar.proxy.web import WebProxy
        from magnetar.serving.url_listeners import HTTP, url_listeners, with_tls

        try:
            proxy = WebProxy(lambda: self.settings, self.memory, self.connections, self.figures)
        except ValueError as error:
            raise InvalidConfig(f"Invalid value for configuration broker.web.service.url: {error}") from None
        self._close.append(proxy.close)
        told = self.settings.value("http_advertised_listeners")
        assert isinstance(told, tuple)
        listeners = with_tls(url_listeners("http", served, told, HTTP, self.settings), self.settings)
        await self._listen("http", listeners, proxy.connection)

    def _security(self) -> ClientSecurity:
        own = self.settings.of(ProxySettings)
        return ClientSecurity(
            tls=own.proxy_broker_tls_enabled,
            trusted=own.broker_client_trust_certs_file_path or None,
            certificate=own.broker_client_certificate_file_path or None,
            key=own.broker_client_key_file_path or None,
            any_name=not own.tls_hostname_verification_enabled,
        )

    async def _listen(
        self,
        protocol: str,
        listeners: list[Listener],
        connection: Callable[[Listener], asyncio.BaseProtocol],
    ) -> None:
        self.served[protocol] = tuple([await self._open(each, connection) for each in listeners])

    async def _open(
        self, listener: Listener, connection: Callable[[Listener], asyncio.BaseProtocol]
    ) -> Listener:
        bound = listener
        tls = listener.context
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: connection(bound),
                listener.bind.host or None,
                listener.bind.port,
                backlog=self.settings.connections.socket_listen_backlog_size,
                start_serving=False,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if tls else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S if tls else None,
            )
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error
            raise CannotListen(f"listener {listener.name} cannot serve on {listener.bind}: {why}") from error
        self._servers.append(server)
        bound = listener.bound(server.sockets[0].getsockname()[1])
        await server.start_serving()
        return bound

    def close(self) -> None:
        """Let everybody go."""
        for server in self._servers:
            server.close()
        for close in self._close:
            close()
        _log.info("closed")


def ready_line(served: Mapping[str, tuple[Listener, ...]]) -> str:
    """Return the line that tells where clients may connect."""
    words = [f"{name}={','.join(str(each.advertised) for each in told)}" for name, told in served.items()]
    return " ".join(["ready", *words])
