"""The settings of ``magnetar proxy``. Listeners, TLS, limits of connections and of memory are those of brokers."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, at_least


@dataclass(frozen=True, slots=True)
class ProxySettings(HandlerSettings):
    """The proxy, which is `magnetar proxy`."""

    proxy_bootstrap_servers: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Kafka addresses of some brokers, HOST:PORT each; empty if no Kafka clients are served.",
    )
    broker_service_url: str = setting(
        "",
        Kind.STRING,
        "Pulsar addresses of some brokers, pulsar://HOST:PORT or pulsar+ssl://HOST:PORT, further ones after "
        "commas; empty if no Pulsar clients are served.",
        pulsar=("brokerServiceURLTLS",),
    )
    broker_web_service_url: str = setting(
        "",
        Kind.STRING,
        "Where the admin REST of some brokers is reached, http://HOST:PORT, further ones behind commas; empty if "
        "it is not passed on.",
    )
    proxy_node_id: int = setting(
        0, Kind.INT, "Node id of the only broker that Kafka clients see.", rule=at_least(0)
    )
    proxy_broker_tls_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether brokers are spoken to in TLS, by Kafka's protocol.",
        pulsar=("tlsEnabledWithBroker",),
    )
    broker_client_trust_certs_file_path: str = setting(
        "",
        Kind.STRING,
        "PEM file of the authorities that sign brokers' certificates; empty for those that the system trusts.",
    )
    broker_client_certificate_file_path: str = setting(
        "", Kind.STRING, "PEM file of the certificate that is shown to brokers; empty for none."
    )
    broker_client_key_file_path: str = setting("", Kind.STRING, "PEM file of that certificate's key.")
    tls_hostname_verification_enabled: bool = setting(
        True, Kind.BOOLEAN, "Whether a broker's certificate must be of the name that it is reached by."
    )
    broker_proxy_allowed_host_names: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Hosts of brokers that Pulsar clients may connect to, `*` standing for any part of a name. Brokers that a"
        " lookup returned to a client are always allowed, and no others.",
    )
    broker_proxy_allowed_target_ports: tuple[str, ...] = setting(
        ("6650", "6651"), Kind.LIST, "Ports of the brokers that are allowed by their host; `*` is any."
    )
    proxy_connect_timeout_ms: int = setting(
        10_000,
        Kind.INT,
        "How long a broker may take to be connected to.",
        unit="ms",
        rule=at_least(1),
        pulsar=("brokerProxyConnectTimeoutMs",),
    )
    proxy_request_timeout_ms: int = setting(
        60_000,
        Kind.INT,
        "How long a broker may take to answer, beyond what the request itself asks to wait; then it counts as gone.",
        unit="ms",
        rule=at_least(1),
    )
    proxy_idle_connections: int = setting(
        8,
        Kind.INT,
        "Idle connections to one broker that are retained for the next client with the same name and password, or"
        " with none. Connections with SCRAM are not.",
        rule=at_least(0),
    )
    proxy_delegation_token_lifetime_ms: int = setting(
        600_000,
        Kind.INT,
        "How long a delegation token lasts with which a client that logs in by SCRAM reaches further brokers; one that "
        "needs it for longer is given another after half of that. So long it outlives a proxy that is killed.",
        unit="ms",
        rule=at_least(1000),
    )
