"""Where Pulsar's clients and admin tools are served: ``pulsar://HOST:PORT``, ``pulsar+ssl``, ``http`` and ``https``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from magnetar.broker.auth.tls import pulsar_client_auth
from magnetar.broker.errors import InvalidConfig
from magnetar.broker.listeners import Endpoint, Listener, parse_listeners, reachable
from magnetar.broker.settings import Settings

BINARY = {"pulsar": "PULSAR", "pulsar+ssl": "PULSAR_SSL"}
WEB = {"http": "HTTP", "https": "HTTPS"}
"""Names of listeners by scheme; the second one of each is encrypted."""
_SCHEMES = {name: scheme for scheme, name in (BINARY | WEB).items()}
_URL = re.compile(
    r"(?:(?P<scheme>[a-z+]+)://)?(?:\[(?P<six>[0-9A-Fa-f:.%]*)\]|(?P<host>[^\[\]/:]*)):(?P<port>\d{1,5})/?"
)


def parse_pulsar_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Give where the binary protocol is to be served, or raise `InvalidConfig`; none where nothing is set."""
    ports = settings.broker_service_port, settings.broker_service_port_tls
    served = _with_ports(settings.pulsar_listeners, ports, BINARY, settings)
    return _listeners("pulsar", served, settings.pulsar_advertised_listeners, BINARY, settings)


def parse_web_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Give where the admin REST is to be served, or raise `InvalidConfig`; none where nothing is set."""
    ports = settings.web_service_port, settings.web_service_port_tls
    served = _with_ports(settings.http_listeners, ports, WEB, settings)
    return _listeners("http", served, settings.http_advertised_listeners, WEB, settings)


def parse_schema_registry_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Give where the schema registry is to be served, or raise `InvalidConfig`; none where nothing is set."""
    served = list(settings.schema_registry_listeners)
    if settings.kop_schema_registry_enable and not served:
        host = parse_listeners(settings)[0].bind.host
        host = f"[{host}]" if ":" in host else host
        served.append(f"http://{host}:{settings.kop_schema_registry_port}")
    return _listeners("schema.registry", served, (), WEB, settings)


def url(listener: Listener) -> str:
    """Give what clients connect to."""
    return f"{_SCHEMES[listener.name]}://{listener.advertised}"


def _with_ports(
    listeners: Sequence[str], ports: tuple[str, str], schemes: dict[str, str], settings: Settings
) -> list[str]:
    """Add what Pulsar's files say by ports alone: the plain one where no listeners are given, and that for TLS."""
    (plain, encrypted), (port, tls_port) = schemes, ports
    served = list(listeners)
    host = _host(served[0] if served else f"{plain}://{_bracketed(settings.bind_address)}:0")
    if port and not served:
        served.append(f"{plain}://{host}:{port}")
    if tls_port:
        served.append(f"{encrypted}://{host}:{tls_port}")
    return served


def _listeners(
    part: str, served: Sequence[str], told: Sequence[str], schemes: dict[str, str], settings: Settings
) -> tuple[Listener, ...]:
    if told and len(told) != len(served):
        raise InvalidConfig(
            f"Invalid value for configuration {part}.advertised.listeners: {len(served)} are served, {len(told)} told"
        )
    binds = [_parsed(f"{part}.listeners", text, schemes) for text in served]
    tell = [_parsed(f"{part}.advertised.listeners", text, schemes)[1] for text in told]
    tell = tell or [
        Endpoint(settings.advertised_address or reachable(bind.host), bind.port) for _, bind in binds
    ]
    return tuple(
        _listener(schemes[scheme], scheme in ("pulsar+ssl", "https"), bind, advertised, settings)
        for (scheme, bind), advertised in zip(binds, tell, strict=True)
    )


def _listener(name: str, tls: bool, bind: Endpoint, advertised: Endpoint, settings: Settings) -> Listener:
    asks_all = settings.authentication_enabled and not settings.anonymous_user_role
    if not tls:
        return Listener(name, "PLAINTEXT", bind, advertised, asks_all)
    return Listener(name, "SSL", bind, advertised, asks_all, pulsar_client_auth(settings))


def _parsed(setting: str, text: str, schemes: dict[str, str]) -> tuple[str, Endpoint]:
    match = _URL.fullmatch(text)
    scheme = (match["scheme"] or next(iter(schemes))) if match is not None else ""
    if match is None or scheme not in schemes or int(match["port"]) > 65535:
        forms = " or ".join(f"{each}://HOST:PORT" for each in schemes)
        raise InvalidConfig(f"Invalid value {text} for configuration {setting}: expected {forms}")
    return scheme, Endpoint(match["six"] if match["six"] is not None else match["host"], int(match["port"]))


def _host(served: str) -> str:
    match = _URL.fullmatch(served)
    if match is None:  # an error, which `_parsed` tells
        return ""
    return f"[{match['six']}]" if match["six"] is not None else match["host"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
