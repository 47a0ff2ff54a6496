"""Sockets bound to the addresses of listeners."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Door:
    """One listener of all workers: what is bound to the address that it was given, and each worker's own port."""

    shared: tuple[int, ...]
    """Descriptors of sockets that listen, one for each address of the host."""
    own: tuple[tuple[str, int], ...]
    """Addresses and ports for this worker alone, kept free for it."""


def bound_socket(host: str, port: int, *, shares: bool) -> socket.socket:
    """Return a socket bound to an address, to which others of this user may be bound as well if it ``shares``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
