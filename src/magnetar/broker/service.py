"""A whole broker in one process: storage, core and protocol handlers, started in order and ended in reverse."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.broker.auth.tls import (
    HANDSHAKE_TIMEOUT_S,
    SHUTDOWN_TIMEOUT_S,
)
from magnetar.broker.background import end_all
from magnetar.broker.core import Broker
from magnetar.broker.descriptors import DescriptorWatch
from magnetar.broker.duties import Duties
from magnetar.broker.handlers import ProtocolHandler, arranged, asked_for
from magnetar.broker.listeners import CannotListen, Listener, warn_open
from magnetar.broker.ownership import Ownership
from magnetar.broker.settings import Settings
from magnetar.broker.storage.opening import Storage, open_storage
from magnetar.ledger.errors import LedgerError
from magnetar.metadata.modes import FILE_MODE

if TYPE_CHECKING:
    from magnetar.broker.cluster_ownership import ClusterOwnership

ADDRESS_FILE = "broker.json"
_DESCRIPTOR_CHECK_S = 1.0
_LOCK_CHECK_S = 10.0
_log = logging.getLogger("magnetar.broker")


class BrokerService:
    """One broker. ``listeners`` have their ports once it has started."""

    def __init__(self, settings: Settings, ownership: Ownership | None = None) -> None:
        """``ownership`` tells what this broker serves; None for everything."""
        self.settings = settings
        self._ownership = ownership
        self.root = Path(settings.node.data_dir).absolute()
        self.listeners: dict[str, tuple[Listener, ...]] = {}
        """What is served, by the name of the protocol, in the order of start."""
        self.broker: Broker
        self.handlers: list[ProtocolHandler] = []
        self._storage: Storage
        self._cluster: ClusterOwnership | None = None
        """Where it is one of several."""
        self._servers: list[asyncio.Server] = []
        self.on_failed: Callable[[], None] = lambda: None
        """Called when storage has failed for good, unless settings have the broker go on without it."""

    async def start(self) -> None:
        """Recover, then serve; raise what stands against it, with nothing left running."""
        self.handlers = arranged(self.settings)
        # Who is only needed by another serves nobody, whatever its listeners are by default.
        asked = asked_for(self.settings)
        wanted = [each.listeners() if each.protocol_name in asked else () for each in self.handlers]
        self._storage = await open_storage(self.settings)
        try:
            await self._start(wanted)
        except BaseException:
            if self._cluster is not None:
                await self._storage.engine.close()  # threads of a JVM would keep the process
            await self._storage.store.close()
            self._storage.lock.release()
            raise

    async def _start(self, wanted: Sequence[Sequence[Listener]]) -> None:
        engine = self._storage.engine
        engine.on_failed = self._storage_failed
        ownership, store = self._ownership, self._storage.store
        if ownership is None and self.settings.node.metadata_url.startswith("zk:"):
            from magnetar.broker.cluster_ownership import of_cluster  # a broker alone needs none of it

            ownership = self._cluster = of_cluster(self.settings, store)
            await self._cluster.start()
        await engine.start()
        self.broker = Broker(self.settings, store, engine, ownership)
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
            for kind in handler.offers:
                self.broker.offers.get(kind)
            self.broker.readiness.append(handler.ready)
        Duties(self.broker).start()
        for handler, listeners in zip(self.handlers, wanted, strict=True):
            served = tuple([await self._listen(listener, handler) for listener in listeners])
            self.listeners[handler.protocol_name] = served
            handler.serves(served)
        if self._cluster is not None:
            self._cluster.namespaces = self.broker.namespaces.names
            await self._cluster.begin()
        self._tell_address()

    @property
    def served(self) -> dict[str, tuple[Listener, ...]]:
        """What is served, as operators and broker.json call it: the admin REST is "http"."""
        return {
            "http" if protocol == "admin" else protocol: self.listeners[protocol]
            for protocol in asked_for(self.settings)
            if self.listeners[protocol]
        }

    def _storage_failed(self, error: LedgerError) -> None:
        if self.broker.settings.node.storage_failure_halt:
            self.on_failed()

    async def _renew_lock(self) -> None:
        if self._storage.lock.renew():
            _log.error(
                "the lock file of %s was removed or replaced by somebody, and is made again; the directory itself is "
                "locked, too, so no other broker came in",
                self.root,
            )

    async def _listen(self, listener: Listener, handler: ProtocolHandler) -> Listener:
        """Open one listener; a client may come at once, so it is bound before it is served."""
        warn_open(listener)
        bound, tls = listener, listener.context
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: handler.new_connection(bound),
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
        bound = listener.bound(server.sockets[0].getsockname()[1])
        self.broker.ownership.listens(bound.name, bound.advertised)
        await server.start_serving()
        self._servers.append(server)
        return bound

    async def _leave_cluster(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()

    def _tell_address(self) -> None:
        """Leave word in the data directory of who serves it and where."""
        word: dict[str, object] = {"pid": os.getpid()}
        word |= {protocol: [each.address for each in served] for protocol, served in self.served.items()}
        draft = self.root / (ADDRESS_FILE + ".tmp")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(word) + "\n")
        draft.rename(self.root / ADDRESS_FILE)

    async def close(self) -> None:
        """Stop serving, make everything durable, and let go of the data directory.

        Whatever one part raises, the others are ended, too; raises an ``ExceptionGroup`` of it all afterwards.
        """
        last_first = list(reversed(self.handlers))
        await end_all(
            "the broker",
            [
                *(("a listener", server.close) for server in self._servers),
                ("what this broker owns", self._leave_cluster),
                *((f"clients of {each.protocol_name}", each.drain) for each in last_first),
                ("compactions", self.broker.compactions.close),
                *((f"protocol {each.protocol_name}", each.close) for each in last_first),
                ("background work", self.broker.background.close),
                ("storage", self._storage.engine.close),
                ("the address file", partial((self.root / ADDRESS_FILE).unlink, missing_ok=True)),
                ("the metadata store", self._storage.store.close),
                ("the data directory", self._storage.lock.release),
            ],
        )
        _log.info("closed")
