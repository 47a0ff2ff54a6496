"""The settings of Kafka's protocol."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, at_least, between

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class KafkaSettings(HandlerSettings):
    """Kafka's protocol."""

    # Listeners.
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        Kind.LIST,
        "Addresses to serve on, NAME://HOST:PORT each; port 0 chooses a free one, IPv6 hosts stand in brackets.",
        pulsar=("kafkaListeners",),
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses returned to clients, by listener name; empty for those served on.",
        pulsar=("kafkaAdvertisedListeners",),
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Security protocol by listener name, NAME:PROTOCOL; a name that is a protocol needs none.",
        pulsar=("kafkaProtocolMap",),
    )
    inter_broker_listener_name: str = setting(
        "",
        Kind.STRING,
        "Listener over which the brokers of a cluster ask each other; empty for one without TLS and SASL if there "
        "is one. Where it has SASL they know each other by a password of the cluster's own.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        (), Kind.LIST, "Listeners of controllers in a file made for Kafka; they are not served."
    )

    # Connections.
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
        "SO_SNDBUF of Kafka connections; -1 leaves the size to the system (Kafka's own default is 102400).",
        unit="bytes",
        rule=at_least(-1),
    )
    socket_receive_buffer_bytes: int = setting(
        -1,
        Kind.INT,
        "SO_RCVBUF of Kafka connections; -1 leaves the size to the system (Kafka's own default is 102400).",
        unit="bytes",
        rule=at_least(-1),
    )
    queued_max_requests: int = setting(
        500,
        Kind.INT,
        "Requests of a Kafka connection that may wait for their responses before the broker stops reading from "
        "it.",
        rule=at_least(1),
        pulsar=("maxQueuedRequests",),
    )

    slow_request_ms: tuple[str, ...] = setting(
        ("1000",),
        Kind.LIST,
        "Time from which a request has a line in the log (magnetar.slow) with its phases and its client: for all APIs, "
        "or as in `Produce:500,Fetch:2000,*:1000`; 0 is never. What a client wants to wait for does not count, and "
        "JoinGroup, SyncGroup and ShareFetch, which wait by their nature, have lines only if they are named.",
    )

    # Reading.
    fetch_max_bytes: int = setting(
        57671680,
        Kind.INT,
        "Most that one Fetch answer holds, but for a first batch that is larger. "
        "Answers stay at 4 MB whatever is set above that: larger ones are slower.",
        unit="bytes",
        rule=at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1000, Kind.INT, "Fetch sessions that are remembered.", rule=at_least(0)
    )
    chunked_message_max_bytes: int = setting(
        16 * _MB,
        Kind.LONG,
        "Largest message in chunks that Kafka clients get as one record; 0: none.",
        unit="bytes",
        rule=between(0, 256 * _MB),
    )

    # Quotas of clients.
    quota_window_num: int = setting(
        11,
        Kind.INT,
        "Windows over which the rates of clients are taken that have quotas.",
        rule=at_least(1),
    )
    quota_window_size_seconds: int = setting(
        1, Kind.INT, "How long each of these windows is.", unit="s", rule=at_least(1)
    )
    controller_quota_window_num: int = setting(
        11,
        Kind.INT,
        "A client with a quota on topics and partitions may create or delete so many windows' worth in one burst.",
        rule=at_least(1),
    )
    controller_quota_window_size_seconds: int = setting(
        1, Kind.INT, "How long each of these windows is.", unit="s", rule=at_least(1)
    )

    # SASL.
    sasl_server_max_receive_size: int = setting(
        524288,
        Kind.INT,
        "Largest request frame of a client that has not authenticated.",
        unit="bytes",
        rule=at_least(512),
        by_listener=True,
    )
    connections_max_reauth_ms: int = setting(
        0,
        Kind.LONG,
        "Time after which a client must authenticate again, even if its token is good for longer; 0 for no bound.",
        unit="ms",
        rule=at_least(0),
        by_listener=True,
    )

    # Producers and transactions.
    producer_id_expiration_ms: int = setting(
        86400000,
        Kind.INT,
        "How long a silent idempotent producer is remembered.",
        unit="ms",
        rule=at_least(1),
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600000,
        Kind.INT,
        "How often silent idempotent producers are looked for.",
        unit="ms",
        rule=at_least(1),
    )
    transactional_id_expiration_ms: int = setting(
        604800000,
        Kind.INT,
        "How long a transactional id without a transaction is remembered.",
        unit="ms",
        rule=at_least(1),
        pulsar=("kafkaTransactionalIdExpirationMs",),
    )
    transaction_max_timeout_ms: int = setting(
        900000,
        Kind.INT,
        "The longest that a producer may ask its transactions to be let open.",
        unit="ms",
        rule=at_least(1),
    )
