"""A worker's place among those that share a data directory: what whoever looks after them gives it on its way.

It is handed over as a pickle on the worker's standard input, and the sockets and the lock as descriptors.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.metadata.keeper import LOOKS
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.port import MetadataStore
from magnetar.node.workers.sockets import Door, bound_socket
from magnetar.serving.listeners import Listener
from magnetar.settings.cluster import ClusterSettings
from magnetar.settings.settings import Settings

if TYPE_CHECKING:
    from magnetar.cluster.cluster_ownership import ClusterOwnership
    from magnetar.logs.storage.opening import Storage

BUNDLES = 64
"""Of a namespace that is made: so many that the partitions of one topic, whose names' hashes differ in few bits, lie in
different ones.
"""


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """``number`` counts from 1. ``all_doors`` are by number and protocol, in the order of the handler's listeners."""

    number: int
    parent: int
    """The process that looks after it."""
    lock: tuple[int, ...]
    """Descriptors of the directory's lock: it is held until the last process that has them is gone."""
    store: int
    """The descriptor of the socket to whoever keeps the metadata."""
    questions: int
    """That of the socket where operators ask."""
    all_doors: Mapping[int, Mapping[str, Sequence[Door]]] = field(default_factory=dict)

    @property
    def doors(self) -> Mapping[str, Sequence[Door]]:
        """Its own."""
        return self.all_doors.get(self.number, {})

    @property
    def descriptors(self) -> list[int]:
        """All that the worker's process has to inherit."""
        shared = (fd for doors in self.doors.values() for door in doors for fd in door.shared)
        return [*self.lock, self.store, self.questions, *shared]

    def keep_from_children(self) -> None:
        """Have no process that this one begins inherit anything of it."""
        for each in self.descriptors:
            os.set_inheritable(each, False)

    async def open_storage(self, settings: Settings) -> Storage:
        """Return the store that is kept elsewhere, and an engine with a journal of its own."""
        # Only in a worker: whoever looks after them stays small.
        from magnetar.logs.storage.embedded import files_engine
        from magnetar.logs.storage.opening import Storage
        from magnetar.metadata.keeper_client import KeeperStore

        root = Path(settings.node.data_dir).absolute()
        lock = DirectoryLock.inherited(root, *self.lock)
        alive_s = settings.node.worker_session_ms / 1000 / LOOKS
        store = await KeeperStore.open(socket.socket(fileno=self.store), alive_s)
        store.session.on_lost.append(_end_at_once)
        return Storage(lock, store, files_engine(root, settings, store, self.number))

    def ownership(
        self, settings: Settings, store: MetadataStore, listeners: Mapping[str, Sequence[Listener]]
    ) -> ClusterOwnership:
        """Return who serves what: the same as in a cluster. ``listeners`` are those of each protocol."""
        from magnetar.cluster.cluster_ownership import ClusterOwnership
        from magnetar.cluster.ownership import BrokerInfo

        node = settings.node
        others = [
            BrokerInfo(
                node.node_id + number - self.number,
                node.broker_rack,
                {
                    listener.name: self.own_listener(listener, door).advertised
                    for protocol, wanted in listeners.items()
                    for listener, door in zip(wanted, doors.get(protocol, ()), strict=False)
                },
            )
            for number, doors in self.all_doors.items()
            if number != self.number
        ]
        return ClusterOwnership(
            store,
            settings.of(ClusterSettings).cluster_name,
            node.node_id,
            node.broker_rack,
            BUNDLES,
            node.worker_session_ms / 1000,
            come_back=others,
        )

    def own_socket(self, host: str, port: int) -> socket.socket:
        """Return a socket for one of this worker's own addresses."""
        return bound_socket(host, port, shares=True)

    def own_listener(self, listener: Listener, door: Door) -> Listener:
        """Return a listener as this worker's clients are told of it, with a port that is its alone."""
        port = door.own[0][1]
        told = listener.advertised
        # As far from the port that clients are told first as the bound one is: whoever maps ports maps all alike.
        moved = told.port + port - listener.bind.port if listener.bind.port and told.port else port
        return replace(
            listener,
            bind=replace(listener.bind, port=port),
            advertised=replace(told, port=moved if moved < 65536 else port),
        )


def _end_at_once() -> None:
    """Without whoever keeps the metadata nothing is this process's any more, and nothing can be asked."""
    os._exit(os.EX_UNAVAILABLE)
