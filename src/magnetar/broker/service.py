"""A whole broker in one process: storage, core and protocol handlers, started in order and ended in reverse."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from magnetar.broker.auth.tls import (
    HANDSHAKE_TIMEOUT_S,
    SHUTDOWN_TIMEOUT_S,
    ServerContext,
    kafka_tls,
    pulsar_tls,
)
from magnetar.broker.background import end_all
from magnetar.broker.core import Broker
from magnetar.broker.descriptors import DescriptorWatch
from magnetar.broker.handlers import ProtocolHandler, load_handlers
from magnetar.broker.listeners import CannotListen, Listener, parse_listeners, warn_open
from magnetar.broker.pulsar_listeners import (
    parse_pulsar_listeners,
    parse_schema_registry_listeners,
    parse_web_listeners,
    url,
)
from magnetar.broker.settings import Settings
from magnetar.ledger.disk import RealDisk
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.engine import FilesEngine
from magnetar.metadata import SqliteStore
from magnetar.metadata.modes import FILE_MODE, FOLDER_MODE

ADDRESS_FILE = "broker.json"
_DESCRIPTOR_CHECK_S = 1.0
_LOCK_CHECK_S = 10.0
_log = logging.getLogger("magnetar.broker")


class BrokerService:
    """One broker on embedded storage. ``listeners`` are known, with their ports, once it has started."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = Path(settings.data_dir).absolute()
        self.listeners: tuple[Listener, ...] = ()
        self.pulsar_listeners: tuple[Listener, ...] = ()
        self.web_listeners: tuple[Listener, ...] = ()
        self.registry_listeners: tuple[Listener, ...] = ()
        self.broker: Broker
        self.handlers: list[ProtocolHandler] = []
        self._store: SqliteStore
        self._engine: FilesEngine
        self._servers: list[asyncio.Server] = []
        self._tls: dict[str, ServerContext] = {}
        """By listener."""
        self.on_failed: Callable[[], None] = lambda: None
        """Called when storage has failed for good, unless settings have the broker go on without it."""

    async def start(self) -> None:
        """Recover, then serve; raise what stands against it, with nothing left running."""
        wanted = parse_listeners(self.settings)
        self._tls = {each.name: kafka_tls(self.settings, each.client_auth) for each in wanted if each.tls}
        pulsar, web = parse_pulsar_listeners(self.settings), parse_web_listeners(self.settings)
        registry = parse_schema_registry_listeners(self.settings)
        self._tls |= {each.name: pulsar_tls(self.settings) for each in (*pulsar, *web, *registry) if each.tls}
        protocols = [*self.settings.messaging_protocols]
        protocols += ["pulsar"] if pulsar or web else []
        protocols += ["schema-registry"] if registry else []
        self.handlers = load_handlers(protocols, self.settings.protocol_handler_directory)
        for handler in self.handlers:
            handler.initialize(self.settings)
        self.root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        self._store = SqliteStore(self.root / "metadata.sqlite")
        try:
            await self._start(wanted, pulsar, web, registry)
        except BaseException:
            await self._store.close()
            raise

    async def _start(
        self,
        wanted: tuple[Listener, ...],
        pulsar: tuple[Listener, ...],
        web: tuple[Listener, ...],
        registry: tuple[Listener, ...],
    ) -> None:
        self._engine = FilesEngine(
            self.root, self._store, RealDisk(), flush_interval_ms=self.settings.flush_interval_ms
        )
        self._engine.on_failed = self._storage_failed
        await self._engine.start()
        self.broker = Broker(self.settings, self._store, self._engine)
        await self.broker.start()
        self.broker.background.repeat(
            "looking after the lock file", lambda: _LOCK_CHECK_S, self._renew_lock, essential=True
        )
        watch = DescriptorWatch(time.monotonic)
        self.broker.background.repeat(
            "looking whether there are descriptors", lambda: _DESCRIPTOR_CHECK_S, watch.look
        )
        for handler in self.handlers:
            await handler.start(self.broker)
        first = self.handlers[0]
        self.listeners = tuple([await self._listen(listener, first) for listener in wanted])
        speaks_pulsar = next((each for each in self.handlers if each.accept("pulsar")), first)
        self.pulsar_listeners = tuple([await self._listen(listener, speaks_pulsar) for listener in pulsar])
        self.web_listeners = tuple([await self._listen(listener, speaks_pulsar) for listener in web])
        speaks_pulsar.serves([*self.pulsar_listeners, *self.web_listeners])
        keeps_schemas = next((each for each in self.handlers if each.accept("schema-registry")), first)
        self.registry_listeners = tuple(
            [await self._listen(listener, keeps_schemas) for listener in registry]
        )
        self._tell_address()

    def _storage_failed(self, error: LedgerError) -> None:
        if self.broker.settings.storage_failure_halt:
            self.on_failed()

    async def _renew_lock(self) -> None:
        if self._store.blocking.lock.renew():
            _log.error(
                "the lock file of %s was removed or replaced by somebody, and is made again; the directory itself is "
                "locked, too, so no other broker came in",
                self.root,
            )

    async def _listen(self, listener: Listener, handler: ProtocolHandler) -> Listener:
        """Open one listener; a client may come at once, so it is bound before it is served."""
        warn_open(listener)
        bound, tls = listener, self._tls.get(listener.name)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: handler.new_connection(bound),
                listener.bind.host or None,
                listener.bind.port,
                backlog=self.settings.socket_listen_backlog_size,
                start_serving=False,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S if tls else None,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S if tls else None,
            )
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error
            raise CannotListen(f"listener {listener.name} cannot serve on {listener.bind}: {why}") from error
        bound = listener.bound(server.sockets[0].getsockname()[1])
        await server.start_serving()
        self._servers.append(server)
        return bound

    def _tell_address(self) -> None:
        """Leave word in the data directory of who serves it and where."""
        word: dict[str, object] = {"pid": os.getpid()}
        word["kafka"] = [str(listener.advertised) for listener in self.listeners]
        if self.pulsar_listeners:
            word["pulsar"] = [str(listener.advertised) for listener in self.pulsar_listeners]
        if self.web_listeners:
            word["http"] = [url(listener) for listener in self.web_listeners]
        if self.registry_listeners:
            word["schema-registry"] = [url(listener) for listener in self.registry_listeners]
        draft = self.root / (ADDRESS_FILE + ".tmp")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(word) + "\n")
        draft.rename(self.root / ADDRESS_FILE)

    async def close(self) -> None:
        """Stop serving, make everything durable, and let go of the data directory.

        Whatever one part raises, the others are ended, too; raises an ``ExceptionGroup`` of it all afterwards.
        """
        handlers = [(f"protocol {each.protocol_name}", each.close) for each in reversed(self.handlers)]
        await end_all(
            "the broker",
            [
                *(("a listener", server.close) for server in self._servers),
                ("compactions", self.broker.compactions.close),
                *handlers,
                ("background work", self.broker.background.close),
                ("storage", self._engine.close),
                ("the address file", partial((self.root / ADDRESS_FILE).unlink, missing_ok=True)),
                ("the metadata store", self._store.close),
            ],
        )
        _log.info("closed")
