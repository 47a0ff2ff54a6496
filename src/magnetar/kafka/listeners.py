"""Where to serve Kafka's clients, and what to tell them about it: ``NAME://HOST:PORT``.

The name of a listener is free; its security protocol comes from the protocol map, or is its name.
"""

from __future__ import annotations

import re
from dataclasses import replace

from magnetar.auth.authentication import names_certificates
from magnetar.base.errors import InvalidConfig
from magnetar.base.setting import plain
from magnetar.kafka.sasl import SERVED
from magnetar.kafka.settings import KafkaSettings
from magnetar.serving.listeners import Endpoint, Listener, reachable
from magnetar.settings.settings import Settings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<six>[0-9A-Fa-f:.%]*)\]|(?P<host>[^\[\]/:]*)):(?P<port>\d{1,5})"
)


def parse_listeners(settings: Settings, *, passes_logins_on: bool = False) -> tuple[Listener, ...]:
    """Return all listeners that the settings ask for, or raise `InvalidConfig` that names the wrong one.

    Who passes logins on to brokers need not know by what clients may prove who they are.
    """
    protocols = _protocol_map(settings.of(KafkaSettings).listener_security_protocol_map)
    controllers = {name.upper() for name in settings.of(KafkaSettings).controller_listener_names}
    served = _endpoints("listeners", settings.of(KafkaSettings).listeners, controllers)
    told = _endpoints("advertised.listeners", settings.of(KafkaSettings).advertised_listeners, controllers)
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
            settings.at(name),
            checks_logins=not passes_logins_on,
        )
        for name, bind in served.items()
    )


def _secured(listener: Listener, settings: Settings, *, checks_logins: bool) -> Listener:
    """Return the listener with what it asks of its clients; `InvalidConfig` if nobody could meet that."""
    named_sasl = listener.protocol.startswith("SASL_")
    asks = "none"
    if listener.tls:
        from magnetar.auth.tls import kafka_client_auth

        asks = kafka_client_auth(settings.security)
    says_so = "ssl_client_auth" in settings.by_listener.get(plain(listener.name), {})
    if named_sasl and not (says_so or settings.security.tls_require_trusted_client_cert_on_connect):
        asks = "none"  # as in Kafka: there SASL says who somebody is, unless the listener itself asks
    everybody = settings.security.authentication_enabled and not settings.security.anonymous_user_role
    certified = asks == "required" and names_certificates(settings.security)
    sasl = named_sasl or (everybody and not certified)
    if sasl and checks_logins:
        _check_mechanisms(listener, settings)
    return replace(listener, sasl=sasl, client_auth=asks)


def _check_mechanisms(listener: Listener, settings: Settings) -> None:
    security = settings.security
    enabled = [each for each in security.sasl_enabled_mechanisms if each in SERVED]
    if not enabled:
        raise InvalidConfig(
            f"listener {listener.name} asks for SASL, and of sasl.enabled.mechanisms none is served: add PLAIN"
        )
    by_password = security.takes_passwords and "PLAIN" in enabled
    if not (security.has_token_keys or by_password or security.takes_scram):
        raise InvalidConfig(
            f"listener {listener.name} asks its clients to authenticate by SASL, which takes tokens or passwords here: "
            "set token.secret.key, token.public.key, token.jwks, basic.auth.conf or plain.sasl.jaas.config, or name a "
            "mechanism of SCRAM in sasl.enabled.mechanisms"
        )


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
