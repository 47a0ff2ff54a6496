"""Every setting of the broker in one typed object, made of parts. ``docs/configuration.md`` is made from them.

A field's own name is its Kafka name with dots as underscores, where Kafka has such a setting. Times are in ms and
sizes in bytes unless the unit says otherwise. How files, environment and flags become a `Settings` is told in
`magnetar.broker.setting_sources`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from magnetar.broker.errors import InvalidConfig
from magnetar.broker.group_settings import GroupSettings
from magnetar.broker.log_settings import LogSettings
from magnetar.broker.setting import Feed, SettingDef, plain, setting, times
from magnetar.broker.values import MAX_INT, Kind, Value, at_least, between, one_of

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings(GroupSettings):
    """What the broker was told. Dynamic settings change by giving the broker a new object."""

    # Where things lie and who we are.
    data_dir: str = setting(
        "data",
        Kind.STRING,
        "Directory of ledgers, journal and metadata. One broker at a time may open it.",
        kafka=(
            Feed("log.dirs", lambda text: text.split(",")[0]),
            Feed("log.dir", lambda text: text.split(",")[0]),
        ),
    )
    node_id: int = setting(
        0, Kind.INT, "Number of this broker, as clients see it.", rule=at_least(0), kafka=("broker.id",)
    )
    broker_rack: str | None = setting(None, Kind.STRING, "Rack that clients are told, for fetching nearby.")
    log_level: str = setting(
        "INFO",
        Kind.STRING,
        "Least level that is logged.",
        rule=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    log_format: str = setting(
        "text", Kind.STRING, "Form of log lines on standard error.", rule=one_of("text", "json")
    )

    # Listeners and connections.
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        Kind.LIST,
        "Addresses to serve on, NAME://HOST:PORT each; port 0 chooses a free one, IPv6 hosts stand in brackets.",
        pulsar=("kafkaListeners",),
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses that clients are told, by listener name; empty for those served on.",
        pulsar=("kafkaAdvertisedListeners",),
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Security protocol by listener name, NAME:PROTOCOL; a name that is a protocol needs none.",
        pulsar=("kafkaProtocolMap",),
    )
    controller_listener_names: tuple[str, ...] = setting(
        (), Kind.LIST, "Listeners of Kafka's controllers in a file made for Kafka; they are not served."
    )
    socket_request_max_bytes: int = setting(
        104857600,
        Kind.INT,
        "Largest request frame; a larger claim closes the connection.",
        unit="bytes",
        rule=at_least(1),
    )
    socket_send_buffer_bytes: int = setting(
        -1,
        Kind.INT,
        "SO_SNDBUF of Kafka's connections; -1 leaves it to the system, which makes it as large as pays (Kafka's "
        "own default is 102400).",
        unit="bytes",
        rule=at_least(-1),
    )
    socket_receive_buffer_bytes: int = setting(
        -1,
        Kind.INT,
        "SO_RCVBUF of Kafka's connections; -1 leaves it to the system, which makes it as large as pays (Kafka's "
        "own default is 102400).",
        unit="bytes",
        rule=at_least(-1),
    )
    socket_listen_backlog_size: int = setting(
        50, Kind.INT, "Connections that may wait to be accepted.", rule=at_least(1)
    )
    connections_max_idle_ms: int = setting(
        600000,
        Kind.LONG,
        "A connection that says nothing for so long is closed; -1 for never.",
        unit="ms",
        rule=at_least(-1),
        pulsar=("connectionMaxIdleMs",),
    )
    max_connections: int = setting(
        MAX_INT,
        Kind.INT,
        "Connections in all, of every protocol; more are closed at once.",
        rule=at_least(0),
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        MAX_INT,
        Kind.INT,
        "Connections from one address, of every protocol; more are closed at once.",
        rule=at_least(0),
        dynamic=True,
    )
    queued_max_requests: int = setting(
        500,
        Kind.INT,
        "Requests of one of Kafka's connections that may wait for their answers before reading it stops.",
        rule=at_least(1),
        pulsar=("maxQueuedRequests",),
    )
    idle_poll_time_us: int = setting(
        50,
        Kind.INT,
        "How long the broker goes on looking for more before it sleeps, after a small request has come: answers are "
        "sooner, for some processor time where nothing follows. 0: it sleeps at once.",
        unit="us",
        rule=between(0, 10_000),
    )

    # Memory.
    memory_requests_bytes: int = setting(
        64 * _MB,
        Kind.LONG,
        "What all clients together may make the broker keep: requests that come, wait and are carried out, answers not "
        "taken. Past it nothing more is read but small requests, and one at a time of what has half come.",
        unit="bytes",
        rule=at_least(_MB),
        kafka=(Feed("queued.max.request.bytes", lambda text: None if text == "-1" else text),),
    )
    memory_cache_bytes: int = setting(
        32 * _MB,
        Kind.LONG,
        "Bytes kept of what was converted from Kafka's format for Pulsar's consumers, so that many of them cost "
        "one conversion; 0 for none. The newest entries themselves are in the page cache.",
        unit="bytes",
        rule=at_least(0),
        pulsar=(Feed("managedLedgerCacheSizeMB", times(_MB)),),
    )

    chunked_message_max_bytes: int = setting(
        16 * _MB,
        Kind.LONG,
        "How large a message may be that Pulsar's producer cut into chunks, to come whole to Kafka's clients; 0: none.",
        unit="bytes",
        rule=between(0, 256 * _MB),
    )

    # Names.
    kafka_tenant: str = setting(
        "public", Kind.STRING, "Tenant of topics with a short name.", pulsar=("kafkaTenant",)
    )
    kafka_namespace: str = setting(
        "default", Kind.STRING, "Namespace of topics with a short name.", pulsar=("kafkaNamespace",)
    )
    kafka_metadata_tenant: str = setting(
        "public", Kind.STRING, "Tenant of the coordinators' topics.", pulsar=("kafkaMetadataTenant",)
    )
    kafka_metadata_namespace: str = setting(
        "__kafka", Kind.STRING, "Namespace of the coordinators' topics.", pulsar=("kafkaMetadataNamespace",)
    )
    kop_allowed_namespaces: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Namespaces (tenant/namespace) that Kafka clients see; empty for all. `${tenant}` stands for each tenant, "
        "`*` for each namespace.",
    )
    auto_create_namespaces_enable: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether a topic created in a tenant or namespace that does not exist creates it.",
        dynamic=True,
    )

    # Protocols.
    messaging_protocols: tuple[str, ...] = setting(
        ("kafka",), Kind.LIST, "Protocol handlers to start.", pulsar=("messagingProtocols",)
    )
    protocol_handler_directory: str = setting(
        "",
        Kind.STRING,
        "Directory with further protocol handlers, as .py files or packages.",
        pulsar=("protocolHandlerDirectory",),
    )

    given: frozenset[str] = frozenset()
    """The fields that a file, the environment or a flag gave; the others have their defaults."""

    def with_values(self, texts: dict[str, str]) -> Settings:
        """Give a copy in which the named settings (own or Kafka names) have new values, or raise `InvalidConfig`."""
        values: dict[str, Value] = {}
        for name, text in texts.items():
            found = find_all(name)
            if not found:
                raise InvalidConfig(f"Unknown setting: {name}")
            for definition, feed in found:
                if (converted := feed.convert(text)) is not None:
                    values[definition.field] = definition.parse(converted)
        return replace(self, **values, given=self.given | values.keys())  # type: ignore[arg-type]


def _definitions() -> dict[str, SettingDef]:
    # A dataclass puts what it inherits first; the page begins with what everybody needs.
    first = (Settings, LogSettings, GroupSettings)
    ordered = sorted(
        fields(Settings),
        key=lambda field: [field.name in part.__annotations__ for part in first],
        reverse=True,
    )
    made = ((field.name, field.metadata.get("setting")) for field in ordered)
    return {name: replace(each, field=name) for name, each in made if each is not None}


SETTINGS: dict[str, SettingDef] = _definitions()
"""All settings by field name, in the order of the page; those of security and of Pulsar's protocol last."""


def _by_name() -> dict[str, list[tuple[SettingDef, Feed]]]:
    named: dict[str, dict[str, tuple[SettingDef, Feed]]] = {}
    for each in SETTINGS.values():
        for feed in each.feeds:
            named.setdefault(plain(feed.name), {})[each.name] = each, feed
    return {name: list(found.values()) for name, found in named.items()}


_BY_NAME = _by_name()


def find_all(name: str) -> list[tuple[SettingDef, Feed]]:
    """Give the settings that have this name, own or foreign, in any spelling, and which of their names that is.

    One of Pulsar's may stand for two: ``maxMessageSize`` bounds what Pulsar's producers send, and in KoP Kafka's, too.
    """
    return _BY_NAME.get(plain(name), [])


def find(name: str) -> tuple[SettingDef, Feed] | None:
    """Give the first of `find_all`, or None."""
    return next(iter(find_all(name)), None)
