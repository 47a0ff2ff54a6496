"""The sockets of all workers' listeners, which whoever looks after them holds: no client finds a port closed for long.

The address that a listener was given has one socket that listens, and all workers take connections from it: one that
stands still takes none, and what waits there when one dies is taken by the others. Each worker also has a port of its
own, which its clients are told. That is bound here too, but listens only in the worker: while that is gone,
clients are refused at once and look elsewhere.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from magnetar.base.errors import BrokerError
from magnetar.node.workers.sockets import Door, bound_socket
from magnetar.serving.listeners import CannotListen, Endpoint
from magnetar.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class WantedListener:
    """A listener that a handler asks for. ``advertised`` may have port 0; ``scheme`` is that of its URL, or empty."""

    name: str
    bind: Endpoint
    advertised: Endpoint
    scheme: str


@dataclass(slots=True)
class Doors:
    """Of all workers. ``served`` tells where clients come in, by protocol."""

    served: dict[str, list[str]] = field(default_factory=dict)
    _doors: dict[int, dict[str, list[Door]]] = field(default_factory=dict)
    _held: list[socket.socket] = field(default_factory=list)

    @property
    def of_all(self) -> Mapping[int, Mapping[str, Sequence[Door]]]:
        """Those of each worker, by its number."""
        return self._doors

    def close(self) -> None:
        """Let all go."""
        for each in self._held:
            each.close()

    def open(self, protocol: str, wanted: WantedListener, workers: int, settings: Settings) -> None:
        """Bind one listener for all workers; raise `CannotListen`."""
        try:
            self._open(protocol, wanted, workers, settings)
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error
            raise CannotListen(f"listener {wanted.name} cannot serve on {wanted.bind}: {why}") from error

    def _open(self, protocol: str, wanted: WantedListener, workers: int, settings: Settings) -> None:
        hosts = _addresses(wanted.bind.host)
        shared = self._bound(hosts, wanted.bind.port, alone=True)
        port = shared[0].getsockname()[1]
        for each in shared:
            each.listen(settings.connections.socket_listen_backlog_size)
        descriptors = tuple(each.fileno() for each in shared)
        for worker in range(1, workers + 1):
            step = settings.node.worker_port_step * worker
            own = self._bound(hosts, wanted.bind.port + step if wanted.bind.port else 0, alone=False)
            addresses = tuple((host, own[0].getsockname()[1]) for host in hosts)
            doors = self._doors.setdefault(worker, {}).setdefault(protocol, [])
            doors.append(Door(descriptors, addresses))
        told = Endpoint(wanted.advertised.host, wanted.advertised.port or port)
        name = "http" if protocol == "admin" else protocol
        self.served.setdefault(name, []).append(f"{wanted.scheme}://{told}" if wanted.scheme else str(told))

    def _bound(self, hosts: Sequence[str], port: int, *, alone: bool) -> list[socket.socket]:
        """Return a socket for each address, all of one port; ``alone``: nobody else may be bound to it."""
        made: list[socket.socket] = []
        for host in hosts:
            bound = bound_socket(host, port, shares=not alone)
            self._held.append(bound)
            made.append(bound)
            port = port or bound.getsockname()[1]
        return made


def _addresses(host: str) -> list[str]:
    """Return the addresses that a host stands for; an empty one stands for all interfaces."""
    found = socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def wanted_by_handlers(settings: Settings) -> dict[str, list[WantedListener]]:
    """Return the listeners that the settings ask for, by protocol; raise `BrokerError`.

    Handlers know them, and are loaded for that in another process: whoever looks after workers stays small.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            with open(writing, "wb") as told:
                told.write(pickle.dumps(_asked(settings)))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    found = pickle.loads(data) if data else CannotListen("the handlers cannot be loaded")
    if isinstance(found, BrokerError):
        raise found
    assert isinstance(found, dict)
    return found


def _asked(settings: Settings) -> dict[str, list[WantedListener]] | BrokerError:
    from magnetar.node.handlers import arranged, asked_for

    try:
        asked = asked_for(settings)
        return {
            handler.protocol_name: [
                WantedListener(each.name, each.bind, each.advertised, each.scheme)
                for each in handler.listeners()
            ]
            for handler in arranged(settings)
            if handler.protocol_name in asked
        }
    except BrokerError as error:
        return error
