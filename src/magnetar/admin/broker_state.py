"""The state of a running broker, for `magnetar.doctor` to judge and for bundles: no secrets are in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.admin.health import Health


@dataclass(frozen=True, slots=True)
class ServedListener:
    """One place that is served. ``certificate_ends`` is in Unix time, None without TLS."""

    protocol: str
    name: str
    bind_host: str
    bind_port: int
    host: str
    """With ``port``, the address that clients get."""
    port: int
    scheme: str
    tls: bool
    client_auth: str
    certificate_ends: float | None = None


@dataclass(frozen=True, slots=True)
class ClientsOfSoftware:
    """Connected clients of one software; of Kafka's the lowest version of each API that any of them asked for."""

    protocol: str
    software: str
    version: str
    connections: int
    lowest: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettingShown:
    """A setting's value, and what gave it; ``***`` for a secret that is set."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class BrokerState:
    """All of that. Of workers, this is what one of them has."""

    version: str
    python: str
    system: str
    pid: int
    data: str
    workers: int
    health: Health
    descriptors: int
    descriptor_limit: int
    """-1 for no bound."""
    memory_bytes: int
    memory_limit_bytes: int | None
    listeners: tuple[ServedListener, ...]
    clients: tuple[ClientsOfSoftware, ...]
    settings: tuple[SettingShown, ...]
    ignored: tuple[str, ...]
    """Names that were given and are no settings here."""
    without_effect: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Topics with partitions and groups with states; of very many, not the names of all."""

    topic_count: int
    partition_count: int
    group_count: int
    groups_by_state: dict[str, int]
    topics: dict[str, int]
    groups: dict[str, str]
