"""A place to serve on, for any protocol: its name, where it is bound, and the address that clients are given."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field, replace

from magnetar.base.errors import BrokerError

_log = logging.getLogger(__name__)


class CannotListen(BrokerError):
    """The system does not let this process serve at an address: it is in use, not this machine's, or forbidden."""

    @classmethod
    def because(cls, listener: Listener, error: OSError) -> CannotListen:
        """Return the error that explains the system's refusal."""
        why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else error
        return cls(f"listener {listener.name} cannot serve on {listener.bind}: {why}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host (without brackets; empty for all interfaces) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """One place to serve on. ``advertised`` is the address that its clients are given."""

    name: str
    protocol: str
    bind: Endpoint
    advertised: Endpoint
    sasl: bool = False
    """Whether a client that has shown no certificate must authenticate: a Kafka client by SASL."""
    client_auth: str = "none"
    """Whether TLS asks for the client's certificate: none, requested, required."""
    scheme: str = ""
    """The scheme of the URL that clients connect to; empty where they are given a host and a port."""
    context: ssl.SSLContext | None = field(default=None, compare=False)
    """The TLS context; the broker's service opens no listener that asks for TLS without it."""

    @property
    def address(self) -> str:
        """The address that clients are given: a URL, or a host and a port."""
        return f"{self.scheme}://{self.advertised}" if self.scheme else str(self.advertised)

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.bind.host)

    @property
    def authenticates(self) -> bool:
        """True if a client must authenticate."""
        return self.sasl or self.client_auth == "required"

    @property
    def tls(self) -> bool:
        """True if the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def bound(self, port: int) -> Listener:
        """Return the listener with the port that the system chose."""
        told = replace(self.advertised, port=self.advertised.port or port)
        return replace(self, bind=replace(self.bind, port=port), advertised=told)


def warn_open(listener: Listener, role: str = "") -> bool:
    """Warn loudly if clients from elsewhere may connect without authentication; return whether that is so.

    ``role`` is the role of such clients in grants, if they have one.
    """
    if listener.is_loopback or listener.authenticates:
        return False
    if role:
        _log.warning(
            "listener %s serves on %s, where clients need not log in: all that do not are User:%s, and may do what "
            "ACLs and grants allow that role",
            listener.name,
            listener.bind,
            role,
        )
        return True
    _log.warning(
        "OPEN TO THE NETWORK WITHOUT AUTHENTICATION: listener %s serves on %s, where everybody who can reach this "
        "machine may read, write and delete every topic. Listen on 127.0.0.1, or have clients authenticate "
        "(SASL_SSL, or SSL with ssl.client.auth=required; see docs/security.md).",
        listener.name,
        listener.bind,
    )
    return True


def is_loopback(host: str) -> bool:
    """True if a host is this machine's own loopback address; an empty host is every interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def reachable(host: str) -> str:
    """Return the address for clients where none is set: the host's own name if all interfaces are served."""
    if host not in ("", "0.0.0.0", "::"):
        return host
    import socket

    return socket.gethostname()


def check_free(listener: Listener) -> None:
    """Raise `CannotListen` if another process serves there now: checked before anything slow is started."""
    if not listener.bind.port:
        return
    with suppress(socket.gaierror):  # opening the listener reports that better
        for family, kind, protocol, _, address in socket.getaddrinfo(
            listener.bind.host or None, listener.bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    probe.bind(address)
                except OSError as error:
                    if error.errno == errno.EADDRINUSE:
                        raise CannotListen.because(listener, error) from error
