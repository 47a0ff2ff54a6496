"""A whole broker in one process: storage, core and protocol handlers, started in order and ended in reverse."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.base import audit, start_steps
from magnetar.base.background import end_all
from magnetar.base.descriptors import DescriptorWatch
from magnetar.cluster.bundle_epochs import outgrown
from magnetar.cluster.ownership import Ownership, SoleOwner
from magnetar.cluster.peers import Peers
from magnetar.ledger.errors import LedgerError
from magnetar.logs.storage.opening import Storage, open_storage
from magnetar.node.address_file import forget_address, tell_address
from magnetar.node.broker import Broker
from magnetar.node.disk_watch import DiskWatch
from magnetar.node.duties import Duties
from magnetar.node.handlers import ProtocolHandler, arranged, asked_for
from magnetar.node.vitals import Vitals
from magnetar.serving.listeners import CannotListen, Listener, check_free, warn_open
from magnetar.settings.cluster import ClusterSettings
from magnetar.settings.settings import Settings
from magnetar.topics.identity import check_cluster

if TYPE_CHECKING:
    from magnetar.cluster.cluster_ownership import ClusterOwnership
    from magnetar.ledger.bookkeeper.bookies import Bookies
    from magnetar.node.workers.place import WorkerPlace

_DESCRIPTOR_CHECK_S = 1.0
_LOCK_CHECK_S = 10.0
_LOOK_AT_BOOKIES_S = 5.0
_COUNT_COPIES_S = 60.0
_log = logging.getLogger("magnetar.broker")


class BrokerService:
    """One broker. ``listeners`` have their ports once it has started."""

    def __init__(
        self, settings: Settings, ownership: Ownership | None = None, worker: WorkerPlace | None = None
    ) -> None:
        """``ownership`` tells what this broker serves, None for everything.

        ``worker`` is its place among those that serve one data directory.
        """
        self.settings = settings
        self._worker = worker
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
        self._audit: audit.AuditFile | None = None
        self.on_failed: list[Callable[[], None]] = []
        """Each is called when storage has failed for good, unless settings have the broker go on without it."""

    async def start(self) -> None:
        """Recover, then serve; raise what stands against it, with nothing left running."""
        began = time.monotonic()
        start_steps.begin()
        self.handlers = arranged(self.settings)
        # Who is only needed by another serves nobody, whatever its listeners are by default.
        asked = asked_for(self.settings)
        wanted = [each.listeners() if each.protocol_name in asked else () for each in self.handlers]
        if self._worker is None:
            for each in chain.from_iterable(wanted):
                check_free(each)
        opened = open_storage if self._worker is None else self._worker.open_storage
        self._storage = await opened(self.settings)
        self._open_audit_file()
        try:
            await self._start(wanted)
        except BaseException:
            if self._cluster is not None:
                await self._storage.engine.close()  # threads of a JVM would keep the process
            await self._storage.store.close()
            self._storage.lock.release()
            self._close_audit_file()
            raise
        whole_s = time.monotonic() - began
        if self._cluster is not None and (steps := start_steps.told(whole_s)):
            _log.info("the start took %.1f s: %s", whole_s, steps)

    def _open_audit_file(self) -> None:
        node = self.settings.node
        if node.audit_log_file:
            suffix = "" if self._worker is None else f".{self._worker.number}"
            self._audit = audit.open_file(
                f"{node.audit_log_file}{suffix}", node.audit_log_max_bytes, node.audit_log_backups
            )

    def _close_audit_file(self) -> None:
        if self._audit is not None:
            self._audit.close()

    async def _start(self, wanted: Sequence[Sequence[Listener]]) -> None:
        engine = self._storage.engine
        engine.on_failed.append(self._storage_failed)
        ownership, store = self._ownership, self._storage.store
        node, cluster = self.settings.node, self.settings.of(ClusterSettings).cluster_name
        if ownership is None:
            await check_cluster(store, node.metadata_url, cluster)
        if self._worker is not None:
            by_protocol = {
                each.protocol_name: listeners for each, listeners in zip(self.handlers, wanted, strict=True)
            }
            ownership = self._cluster = self._worker.ownership(self.settings, store, by_protocol)
        elif ownership is None and node.metadata_url.startswith("zk:"):
            from magnetar.cluster.cluster_ownership import of_cluster  # a broker alone needs none of it

            ownership = self._cluster = of_cluster(self.settings, store)
        elif ownership is None:
            ownership = SoleOwner(node.node_id, node.broker_rack, cluster, epoch=await outgrown(store))
        if self._cluster is not None:
            with start_steps.step(_log, "its place in the cluster"):
                await self._cluster.start()
        with start_steps.step(_log, "the storage"):
            await engine.start()
        if self._worker is None:
            self.broker = Broker(self.settings, store, engine, ownership)
        else:
            from magnetar.node.all_figures import answer_others

            peers = Peers(self.root, node.node_id)
            self.broker = Broker(
                self.settings, store, engine, ownership, peers=peers, questions=self._worker.questions
            )
            answer_others(self.broker, peers)
            await peers.start()
        with start_steps.step(_log, "the metadata of topics"):
            await self.broker.start()
        self.broker.background.repeat(
            "looking after the lock file", lambda: _LOCK_CHECK_S, self._renew_lock, essential=True
        )
        if engine.room is not None:
            await DiskWatch(self.broker, engine.room, self.root).start()
        Vitals(self.broker).start()
        watch = DescriptorWatch(time.monotonic)
        self.broker.background.repeat(
            "looking whether there are descriptors", lambda: _DESCRIPTOR_CHECK_S, watch.look
        )
        for handler in self.handlers:
            with start_steps.step(_log, handler.protocol_name):
                await handler.start(self.broker)
            for kind in handler.offers:
                self.broker.offers.get(kind)
            self.broker.health.readiness.append(handler.ready)
        Duties(self.broker).start()
        for handler, listeners in zip(self.handlers, wanted, strict=True):
            served = tuple(
                [await self._serve(at, listener, handler) for at, listener in enumerate(listeners)]
            )
            self.listeners[handler.protocol_name] = served
            self.broker.serving.listeners.extend(served)
            handler.serves(served)
        if self._cluster is not None:
            await self._cluster.begin(self.broker.namespaces.names, self.broker.topics_if_few)
            self._tell_of_cluster(self._cluster)
            if self._worker is None:
                from magnetar.node.load_balancing import LoadBalancing

                LoadBalancing(
                    self.broker.logs.open_logs,
                    self._cluster,
                    lambda: self.broker.settings,
                    self.broker.background,
                ).start()
        if self._worker is None:
            self._tell_address()

    def _tell_of_cluster(self, cluster: ClusterOwnership) -> None:
        from magnetar.cluster.cluster_figures import ClusterFigures, waits_for_bookies

        bookies = getattr(self._storage.engine, "bookies", None)
        health = None if bookies is None else bookies.health
        if self._worker is None:
            self.broker.figures.sources.append(ClusterFigures(cluster, self._storage.store, health))
        if bookies is not None:
            self.broker.health.readiness.append(lambda: waits_for_bookies(bookies.health))
            self.broker.background.repeat(
                "looking whether ledgers can be made", lambda: _LOOK_AT_BOOKIES_S, bookies.look_again
            )
            if bookies.metadata is not None and self._worker is None:
                self._count_under_replicated(cluster, bookies)

    def _count_under_replicated(self, cluster: ClusterOwnership, bookies: Bookies) -> None:
        def look() -> Coroutine[Any, Any, None]:
            return bookies.look_at_copies(counts=cluster.leader() == cluster.node_id)

        self.broker.background.once("counting ledgers with too few copies", look())
        self.broker.background.repeat("counting ledgers with too few copies", lambda: _COUNT_COPIES_S, look)

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
            for told in self.on_failed:
                told()

    async def _renew_lock(self) -> None:
        if self._storage.lock.renew():
            _log.error(
                "the lock file of %s was removed or replaced by somebody, and is made again; the directory itself is "
                "locked, too, so no other broker came in",
                self.root,
            )

    @property
    def _role_of_strangers(self) -> str:
        security = self.settings.security
        return security.unnamed_role if security.authorization_enabled else ""

    async def _serve(self, at: int, listener: Listener, handler: ProtocolHandler) -> Listener:
        """Open the handler's listener of this place in its order."""
        if self._worker is None:
            warn_open(listener, self._role_of_strangers)
            return await self._listen(listener, handler)
        if self._worker.number == 1:
            warn_open(listener, self._role_of_strangers)
        door = self._worker.doors[handler.protocol_name][at]
        bound = self._worker.own_listener(listener, door)
        sockets = [socket.socket(fileno=os.dup(each)) for each in door.shared]
        sockets += [self._worker.own_socket(*address) for address in door.own]
        servers = [
            await self._server(listener, lambda: handler.new_connection(bound), sock=each) for each in sockets
        ]
        self.broker.cluster.ownership.listens(bound.name, bound.advertised)
        for server in servers:
            await server.start_serving()
        self._servers += servers
        return bound

    async def _listen(self, listener: Listener, handler: ProtocolHandler) -> Listener:
        """Open one listener; a client may come at once, so it is bound before it is served."""
        bound = listener
        where = {"host": listener.bind.host or None, "port": listener.bind.port}
        try:
            server = await self._server(listener, lambda: handler.new_connection(bound), **where)
        except OSError as error:
            raise CannotListen.because(listener, error) from error
        bound = listener.bound(server.sockets[0].getsockname()[1])
        self.broker.cluster.ownership.listens(bound.name, bound.advertised)
        await server.start_serving()
        self._servers.append(server)
        return bound

    async def _server(
        self, listener: Listener, connection: Callable[[], asyncio.BaseProtocol], **where: Any
    ) -> asyncio.Server:
        tls = listener.context
        if tls is not None:
            from magnetar.auth.tls import HANDSHAKE_TIMEOUT_S, SHUTDOWN_TIMEOUT_S

            where |= {
                "ssl": tls,
                "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S,
                "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_S,
            }
        return await asyncio.get_running_loop().create_server(
            connection,
            backlog=self.settings.connections.socket_listen_backlog_size,
            start_serving=False,
            **where,
        )

    async def _hand_over(self) -> None:
        """Have other brokers take what this one has while its clients may still ask it where that is."""
        if self._cluster is not None and self._worker is None:  # workers end together
            await self._cluster.leave()

    async def _leave_cluster(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()

    def _tell_address(self) -> None:
        """Leave word in the data directory of who serves it and where."""
        served = self.served.items()
        tell_address(self.root, {name: [each.address for each in listeners] for name, listeners in served})

    def _leave_peers(self) -> None:
        if self.broker.cluster.peers is not None:
            self.broker.cluster.peers.close()

    def _forget_address(self) -> None:
        if self._worker is None:
            forget_address(self.root)

    async def close(self) -> None:
        """Stop serving, make everything durable, and let go of the data directory.

        Whatever one part raises, the others are ended, too; raises an ``ExceptionGroup`` of it all afterwards.
        """
        last_first = list(reversed(self.handlers))
        await end_all(
            "the broker",
            [
                ("handing over what this broker owns", self._hand_over),
                *(("a listener", server.close) for server in self._servers),
                ("what this broker owns", self._leave_cluster),
                *((f"clients of {each.protocol_name}", each.drain) for each in last_first),
                ("questions of other workers", self._leave_peers),
                ("compactions", self.broker.logs.compactions.close),
                *((f"protocol {each.protocol_name}", each.close) for each in last_first),
                ("background work", self.broker.background.close),
                ("storage", self._storage.engine.close),
                ("the address file", self._forget_address),
                ("the metadata store", self._storage.store.close),
                ("the data directory", self._storage.lock.release),
                ("the audit file", self._close_audit_file),
            ],
        )
        _log.info("closed")
