"""How to reach a cluster: the settings of Kafka's clients, as Spark's options have them (``kafka.`` before each name).

bootstrap.servers     HOST:PORT, several with commas; needed
client.id             what the broker's logs call us
request.timeout.ms    30000: how long one answer may take
delivery.timeout.ms   120000: how long to try again before giving up
retry.backoff.ms      100: the first pause before trying again; it doubles, up to a second
security.protocol     PLAINTEXT
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.client.security import ClientSecurity, parse_security

PREFIX = "kafka."


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the cluster is and how patient to be; times in seconds."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "magnetar-spark"
    request_timeout_s: float = 30.0
    delivery_timeout_s: float = 120.0
    backoff_s: float = 0.1
    security: ClientSecurity = field(default_factory=ClientSecurity)


def client_settings(options: Mapping[str, str]) -> ClientSettings:
    """Read the options that begin with ``kafka.``; raise ``ValueError`` naming the one that is wrong."""
    return settings_of(
        {
            name.lower().removeprefix(PREFIX): str(value)
            for name, value in options.items()
            if name.lower().startswith(PREFIX)
        }
    )


def settings_of(named: Mapping[str, str]) -> ClientSettings:
    """Read settings that have no prefix (any more); raise ``ValueError`` naming the one that is wrong."""
    given = {name.lower(): value.strip() for name, value in named.items()}
    if not given.get("bootstrap.servers"):
        raise ValueError("option 'kafka.bootstrap.servers' is missing: HOST:PORT of a broker")
    return ClientSettings(
        bootstrap=tuple(_address(text) for text in given["bootstrap.servers"].split(",") if text.strip()),
        client_id=given.get("client.id", "magnetar-spark"),
        request_timeout_s=milliseconds(given, "request.timeout.ms", 30_000) / 1000,
        delivery_timeout_s=milliseconds(given, "delivery.timeout.ms", 120_000) / 1000,
        backoff_s=milliseconds(given, "retry.backoff.ms", 100) / 1000,
        security=parse_security(given),
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"kafka.bootstrap.servers must be like HOST:PORT,HOST:PORT, not {text.strip()!r}")
    return host.strip("[]"), int(port)


def milliseconds(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a setting in ms; raise ``ValueError`` if it is no number above 0."""
    text = given.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"kafka.{name} must be a number of milliseconds above 0, not {text!r}")
    return int(text)
