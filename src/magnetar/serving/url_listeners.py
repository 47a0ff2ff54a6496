"""Listeners from URLs: ``pulsar://HOST:PORT``, ``https://HOST:PORT``. For handlers whose clients use such URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from magnetar.base.errors import InvalidConfig
from magnetar.serving.listeners import Endpoint, Listener, reachable
from magnetar.settings.settings import Settings

Schemes = Mapping[str, str]
"""Names of listeners by scheme; the second scheme is the encrypted one."""
HTTP: Schemes = {"http": "HTTP", "https": "HTTPS"}
_URL = re.compile(
    r"(?:(?P<scheme>[a-z+]+)://)?(?:\[(?P<six>[0-9A-Fa-f:.%]*)\]|(?P<host>[^\[\]/:]*)):(?P<port>\d{1,5})/?"
)


def url_listeners(
    part: str, served: Sequence[str], told: Sequence[str], schemes: Schemes, settings: Settings
) -> tuple[Listener, ...]:
    """Return what the settings ``part.listeners`` and ``part.advertised.listeners`` ask for, or raise `InvalidConfig`.

    Each client must authenticate where authentication is enabled, and TLS asks for its certificate as the ``tls.``
    settings say.
    """
    if told and len(told) != len(served):
        raise InvalidConfig(
            f"Invalid value for configuration {part}.advertised.listeners: {len(served)} are served, {len(told)} told"
        )
    binds = [_parsed(f"{part}.listeners", text, schemes) for text in served]
    tell = [_parsed(f"{part}.advertised.listeners", text, schemes)[1] for text in told]
    address = settings.connections.advertised_address
    tell = tell or [Endpoint(address or reachable(bind.host), bind.port) for _, bind in binds]
    encrypted = [*schemes][1:]
    return tuple(
        _listener(schemes, scheme, scheme in encrypted, bind, advertised, settings)
        for (scheme, bind), advertised in zip(binds, tell, strict=True)
    )


def with_tls(listeners: Sequence[Listener], settings: Settings) -> list[Listener]:
    """Return the listeners with TLS contexts, from the ``tls.`` settings; raise `InvalidConfig`."""
    if not any(each.tls for each in listeners):
        return list(listeners)
    from magnetar.auth.tls import pulsar_tls

    return [replace(each, context=pulsar_tls(settings.security)) if each.tls else each for each in listeners]


def with_ports(
    listeners: Sequence[str], ports: tuple[str, str], schemes: Schemes, settings: Settings
) -> list[str]:
    """Add the ports that Pulsar's configuration names: the plain one where no listeners are given, and the TLS one."""
    (plain, encrypted), (port, tls_port) = schemes, ports
    served = list(listeners)
    host = _host(served[0] if served else f"{plain}://{bracketed(settings.connections.bind_address)}:0")
    if port and not served:
        served.append(f"{plain}://{host}:{port}")
    if tls_port:
        served.append(f"{encrypted}://{host}:{tls_port}")
    return served


def _listener(
    schemes: Schemes, scheme: str, tls: bool, bind: Endpoint, advertised: Endpoint, settings: Settings
) -> Listener:
    security = settings.security
    asks_all = security.authentication_enabled and not security.anonymous_user_role
    protocol, asks = "PLAINTEXT", "none"
    if tls:
        from magnetar.auth.tls import pulsar_client_auth

        protocol, asks = "SSL", pulsar_client_auth(security)
    return Listener(schemes[scheme], protocol, bind, advertised, asks_all, asks, scheme=scheme)


def _parsed(setting: str, text: str, schemes: Schemes) -> tuple[str, Endpoint]:
    match = _URL.fullmatch(text)
    scheme = (match["scheme"] or next(iter(schemes))) if match is not None else ""
    if match is None or scheme not in schemes or int(match["port"]) > 65535:
        forms = " or ".join(f"{each}://HOST:PORT" for each in schemes)
        raise InvalidConfig(f"Invalid value {text} for configuration {setting}: expected {forms}")
    return scheme, Endpoint(match["six"] if match["six"] is not None else match["host"], int(match["port"]))


def _host(served: str) -> str:
    match = _URL.fullmatch(served)
    if match is None:  # an error, which `_parsed` reports
        return ""
    return f"[{match['six']}]" if match["six"] is not None else match["host"]


def bracketed(host: str) -> str:
    """Return a host as it is written in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
