"""The settings of connections, whatever is spoken on them: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, setting
from magnetar.base.values import MAX_INT, Kind, at_least, between

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Connections of all protocols."""

    bind_address: str = setting(
        "127.0.0.1",
        Kind.STRING,
        "Host on which broker.service.port, web.service.port and their TLS twins are served; 0.0.0.0 for all "
        "interfaces.",
    )
    advertised_address: str = setting(
        "",
        Kind.STRING,
        "Host name for Pulsar clients and tools where no advertised listeners are set; empty for the host served "
        "on.",
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Host names of this broker for HTTP clients where no login is required, in addition to those of its "
        "listeners and those that strangers cannot register; * for any. Pages of these hosts may send requests, "
        "too.",
    )
    socket_listen_backlog_size: int = setting(
        50,
        Kind.INT,
        "Connections that may wait to be accepted. With Kafka's default some of hundreds of simultaneous "
        "connections are reset, as in Kafka: if clients reconnect all at the same time, set it to their number, "
        "and net.core.somaxconn to no less.",
        rule=at_least(1),
    )
    connections_max_idle_ms: int = setting(
        600000,
        Kind.LONG,
        "How long a connection may be idle before it is closed; -1 for ever.",
        unit="ms",
        rule=at_least(-1),
        pulsar=("connectionMaxIdleMs",),
    )
    max_connections: int = setting(
        MAX_INT,
        Kind.INT,
        "Connections in all, of every protocol; more are closed immediately.",
        rule=at_least(0),
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        MAX_INT,
        Kind.INT,
        "Connections from one address, of every protocol; more are closed immediately.",
        rule=at_least(0),
        dynamic=True,
    )
    idle_poll_time_us: int = setting(
        50,
        Kind.INT,
        "How long the broker polls for the next request after a small one before it sleeps: responses are sent "
        "sooner, at the cost of some processor time when no request follows. 0 sleeps immediately.",
        unit="us",
        rule=between(0, 10_000),
    )
    memory_requests_bytes: int = setting(
        64 * _MB,
        Kind.LONG,
        "What all clients together may make the broker keep: requests that come, wait and are carried out, answers not "
        "taken. Past it nothing more is read but small requests, and one at a time of what has half come.",
        unit="bytes",
        rule=at_least(_MB),
        kafka=(Feed("queued.max.request.bytes", lambda text: None if text == "-1" else text),),
    )
