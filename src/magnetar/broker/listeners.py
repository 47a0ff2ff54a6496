"""Where to serve, and what to tell clients about it: ``NAME://HOST:PORT``, several of them, each name once.

The name of a listener is free; its security protocol comes from the protocol map, or is its name.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from dataclasses import dataclass, replace

from magnetar.broker.auth.authentication import names_certificates
from magnetar.broker.auth.tls import kafka_client_auth
from magnetar.broker.errors import BrokerError, InvalidConfig
from magnetar.broker.settings import Settings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<six>[0-9A-Fa-f:.%]*)\]|(?P<host>[^\[\]/:]*)):(?P<port>\d{1,5})"
)
_log = logging.getLogger(__name__)


class CannotListen(BrokerError):
    """The system does not let this process serve at an address: it is in use, not this machine's, or forbidden."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host (without brackets; empty for all interfaces) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """One place to serve on. ``advertised`` is what its clients are told."""

    name: str
    protocol: str
    bind: Endpoint
    advertised: Endpoint
    sasl: bool = False
    """Whether a client that has shown no certificate must authenticate: one of Kafka's by SASL."""
    client_auth: str = "none"
    """Whether TLS asks for the client's certificate: none, requested, required."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.bind.host)

    @property
    def authenticates(self) -> bool:
        """Whether a client must prove who it is."""
        return self.sasl or self.client_auth == "required"

    @property
    def tls(self) -> bool:
        """Whether what is said is encrypted."""
        return self.protocol.endswith("SSL")

    def bound(self, port: int) -> Listener:
        """Give the listener as it is once the system chose its port."""
        told = replace(self.advertised, port=self.advertised.port or port)
        return replace(self, bind=replace(self.bind, port=port), advertised=told)


def parse_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Give all listeners that the settings ask for, or raise `InvalidConfig` that names the wrong one."""
    protocols = _protocol_map(settings.listener_security_protocol_map)
    controllers = {name.upper() for name in settings.controller_listener_names}
    served = _endpoints("listeners", settings.listeners, controllers)
    told = _endpoints("advertised.listeners", settings.advertised_listeners, controllers)
    if not served:
        raise InvalidConfig(
            "Invalid value for configuration listeners: at least one NAME://HOST:PORT is needed"
        )
    for name in told.keys() - served.keys():
        raise InvalidConfig(
            f"Invalid value for configuration advertised.listeners: {name} is not among listeners"
        )
    for name, endpoint in told.items():
        if endpoint.host in ("", "0.0.0.0", "::"):
            raise InvalidConfig(
                f"Invalid value {name}://{endpoint} for configuration advertised.listeners: "
                "clients cannot connect to all interfaces; name a host"
            )
    return tuple(
        _secured(
            Listener(
                name,
                _protocol(name, protocols),
                bind,
                told.get(name) or Endpoint(reachable(bind.host), bind.port),
            ),
            settings,
        )
        for name, bind in served.items()
    )


def _secured(listener: Listener, settings: Settings) -> Listener:
    """Give the listener with what it asks of its clients; `InvalidConfig` if nobody could meet that."""
    named_sasl = listener.protocol.startswith("SASL_")
    asks = kafka_client_auth(settings) if listener.tls else "none"
    if named_sasl and not settings.tls_require_trusted_client_cert_on_connect:
        asks = "none"  # as in Kafka: there SASL says who somebody is
    everybody = settings.authentication_enabled and not settings.anonymous_user_role
    certified = asks == "required" and names_certificates(settings)
    sasl = named_sasl or (everybody and not certified)
    tokens = settings.token_secret_key or settings.token_public_key or settings.token_jwks
    if sasl and not (tokens or settings.basic_auth_conf):
        raise InvalidConfig(
            f"listener {listener.name} asks its clients to authenticate by SASL, which takes tokens or passwords here: "
            "set token.secret.key, token.public.key, token.jwks or basic.auth.conf"
        )
    if sasl and "PLAIN" not in settings.sasl_enabled_mechanisms:
        raise InvalidConfig(
            f"listener {listener.name} asks for SASL, and of sasl.enabled.mechanisms none is served: add PLAIN"
        )
    return replace(listener, sasl=sasl, client_auth=asks)


def warn_open(listener: Listener) -> bool:
    """Warn loudly if strangers may connect without saying who they are; tell whether that is so."""
    if listener.is_loopback or listener.authenticates:
        return False
    _log.warning(
        "OPEN TO THE NETWORK WITHOUT AUTHENTICATION: listener %s serves on %s, where everybody who can reach this "
        "machine may read, write and delete every topic. Listen on 127.0.0.1, or have clients authenticate "
        "(SASL_SSL, or SSL with ssl.client.auth=required; see docs/security.md).",
        listener.name,
        listener.bind,
    )
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own loopback address; an empty host is every interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _endpoints(setting: str, texts: tuple[str, ...], skipped: set[str]) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {setting}: expected NAME://HOST:PORT"
            )
        name = match["name"].upper()
        if name in found:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {setting}: listener {name} is there twice"
            )
        host = match["six"] if match["six"] is not None else match["host"]
        found[name] = Endpoint(host, int(match["port"]))
    return {name: endpoint for name, endpoint in found.items() if name not in skipped}


def _protocol_map(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, separator, protocol = pair.rpartition(":")
        if not separator or protocol.upper() not in PROTOCOLS:
            raise InvalidConfig(
                f"Invalid value {pair} for configuration listener.security.protocol.map: "
                f"expected NAME:PROTOCOL, where PROTOCOL is one of {', '.join(PROTOCOLS)}"
            )
        found[name.strip().upper()] = protocol.upper()
    return found


def _protocol(name: str, protocols: dict[str, str]) -> str:
    protocol = protocols.get(name, name)
    if protocol not in PROTOCOLS:
        raise InvalidConfig(
            f"listener {name} has no security protocol: add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return protocol


def reachable(host: str) -> str:
    """What clients are told when nothing else is said: the host's own name where all interfaces are served."""
    if host not in ("", "0.0.0.0", "::"):
        return host
    import socket

    return socket.gethostname()
