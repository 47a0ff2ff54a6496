"""The settings of a broker that is one of a cluster, by Pulsar's names where Pulsar has them."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, HandlerSettings, setting
from magnetar.base.values import Kind, at_least, between, one_of

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterSettings(HandlerSettings):
    """Clusters."""

    cluster_name: str = setting(
        "standalone",
        Kind.STRING,
        "Name of the broker's cluster, for Pulsar clients and policies. All brokers that share `metadata.url` "
        "have the same; it does not change once something is stored.",
        pulsar=("clusterName",),
    )
    metadata_session_ms: int = setting(
        30_000,
        Kind.INT,
        "Time without a word from a broker after which ZooKeeper gives what it owned to others.",
        unit="ms",
        rule=between(1000, 600_000),
        pulsar=("metadataStoreSessionTimeoutMillis", "zooKeeperSessionTimeoutMillis"),
    )
    metadata_config_path: str = setting(
        "",
        Kind.STRING,
        "File of ZooKeeper's own client properties, for TLS (`zookeeper.client.secure`, `zookeeper.ssl.*`) and logins "
        "(`java.security.auth.login.config`); key and trust stores are PEM.",
        pulsar=("metadataStoreConfigPath",),
    )
    bookkeeper_metadata_url: str = setting(
        "",
        Kind.STRING,
        "Where the bookies are known, as `zk://HOST:PORT/PATH/ledgers`; empty for below `metadata.url`.",
        pulsar=("bookkeeperMetadataServiceUri",),
    )
    bookkeeper_ensemble_size: int = setting(
        2,
        Kind.INT,
        "Number of bookies that a ledger is spread over.",
        rule=at_least(1),
        pulsar=("managedLedgerDefaultEnsembleSize",),
    )
    bookkeeper_write_quorum: int = setting(
        2,
        Kind.INT,
        "Number of bookies that get each entry.",
        rule=at_least(1),
        pulsar=("managedLedgerDefaultWriteQuorum",),
    )
    bookkeeper_ack_quorum: int = setting(
        2,
        Kind.INT,
        "Number of bookies that must have an entry before it is acknowledged.",
        rule=at_least(1),
        pulsar=("managedLedgerDefaultAckQuorum",),
    )
    bookkeeper_password: str = setting(
        "", Kind.PASSWORD, "Password of the ledgers.", pulsar=("managedLedgerPassword",)
    )
    bookkeeper_tls_client_authentication: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether bookies are talked to with TLS and a certificate; as in Pulsar, nothing is encrypted without it.",
        pulsar=("bookkeeperTLSClientAuthentication",),
    )
    bookkeeper_tls_provider_factory_class: str = setting(
        "org.apache.bookkeeper.tls.TLSContextFactory",
        Kind.STRING,
        "Java class that BookKeeper's client makes TLS with.",
        pulsar=("bookkeeperTLSProviderFactoryClass",),
    )
    bookkeeper_tls_key_file_type: str = setting(
        "PEM",
        Kind.STRING,
        "Kind of the file with the key: PEM, JKS or PKCS12.",
        rule=one_of("PEM", "JKS", "PKCS12"),
        pulsar=("bookkeeperTLSKeyFileType",),
    )
    bookkeeper_tls_trust_cert_types: str = setting(
        "PEM",
        Kind.STRING,
        "Kind of the file with those to trust: PEM, JKS or PKCS12.",
        rule=one_of("PEM", "JKS", "PKCS12"),
        pulsar=("bookkeeperTLSTrustCertTypes",),
    )
    bookkeeper_tls_key_store_password_path: str = setting(
        "",
        Kind.STRING,
        "File with the password of the key.",
        pulsar=("bookkeeperTLSKeyStorePasswordPath",),
    )
    bookkeeper_tls_trust_store_password_path: str = setting(
        "",
        Kind.STRING,
        "File with the password of the file with those to trust.",
        pulsar=("bookkeeperTLSTrustStorePasswordPath",),
    )
    bookkeeper_tls_key_file_path: str = setting(
        "", Kind.STRING, "The key with which bookies are talked to.", pulsar=("bookkeeperTLSKeyFilePath",)
    )
    bookkeeper_tls_certificate_file_path: str = setting(
        "", Kind.STRING, "The certificate of that key.", pulsar=("bookkeeperTLSCertificateFilePath",)
    )
    bookkeeper_tls_trust_certs_file_path: str = setting(
        "",
        Kind.STRING,
        "The authorities that bookies' certificates are signed by.",
        pulsar=("bookkeeperTLSTrustCertsFilePath",),
    )
    bookkeeper_tls_cert_files_refresh_duration_seconds: int = setting(
        300,
        Kind.INT,
        "Time after which these files are looked at again; 0 for never.",
        unit="s",
        rule=at_least(0),
        pulsar=("bookkeeperTlsCertFilesRefreshDurationSeconds",),
    )
    bookkeeper_tls_hostname_verification_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether a bookie's certificate must name the address that it is connected to at.",
        pulsar=("bookkeeper_tlsHostnameVerificationEnabled",),
    )
    bookkeeper_client_authentication_plugin: str = setting(
        "",
        Kind.STRING,
        "Java class that logs in at bookies: org.apache.bookkeeper.sasl.SASLClientProviderFactory does by the section "
        "BookKeeper of the JAAS file that java.security.auth.login.config names in metadata.config.path.",
        pulsar=("bookkeeperClientAuthenticationPlugin",),
    )
    bookkeeper_client_authentication_parameters_name: str = setting(
        "",
        Kind.STRING,
        "A property that this class reads.",
        pulsar=("bookkeeperClientAuthenticationParametersName",),
    )
    bookkeeper_client_authentication_parameters: str = setting(
        "",
        Kind.PASSWORD,
        "What that property is.",
        pulsar=("bookkeeperClientAuthenticationParameters",),
    )
    bookkeeper_client_rackaware_policy_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether a ledger's bookies are chosen by the racks that `pulsar-admin bookies set-bookie-rack` says.",
        pulsar=("bookkeeperClientRackawarePolicyEnabled",),
    )
    bookkeeper_client_regionaware_policy_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether they are chosen by regions, too: racks are `/REGION/RACK` then.",
        pulsar=("bookkeeperClientRegionawarePolicyEnabled",),
    )
    bookkeeper_client_min_num_racks_per_write_quorum: int = setting(
        2,
        Kind.INT,
        "Number of racks that each entry lies on, where so many have bookies that are there.",
        rule=at_least(1),
        pulsar=("bookkeeperClientMinNumRacksPerWriteQuorum",),
    )
    bookkeeper_client_enforce_min_num_racks_per_write_quorum: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether no ledger is made where there are fewer racks.",
        pulsar=("bookkeeperClientEnforceMinNumRacksPerWriteQuorum",),
    )
    bookkeeper_client_isolation_groups: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Groups of bookies (`set-bookie-rack --group`) that this broker's ledgers are on; empty for all bookies.",
        pulsar=("bookkeeperClientIsolationGroups",),
    )
    bookkeeper_client_secondary_isolation_groups: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Groups that help where the first have too few bookies that are there.",
        pulsar=("bookkeeperClientSecondaryIsolationGroups",),
    )
    bookkeeper_add_timeout_s: int = setting(
        30,
        Kind.INT,
        "Time after which an append fails that too few bookies have answered.",
        unit="s",
        rule=at_least(3),
        pulsar=(
            Feed("managedLedgerAddEntryTimeoutSeconds", lambda text: text if text.strip() != "0" else None),
        ),
    )
    bookkeeper_cache_bytes: int = setting(
        64 * _MIB,
        Kind.INT,
        "Memory for entries: three quarters for the newest of all topics, from which those are served that follow "
        "them, a quarter for what is read before those ask for it that read from one entry to the next.",
        unit="bytes",
        rule=at_least(0),
    )
    bookkeeper_heap_bytes: int = setting(
        256 * _MIB,
        Kind.INT,
        "Heap of the JVM that BookKeeper's client runs in.",
        unit="bytes",
        rule=at_least(64 * _MIB),
    )
    bookkeeper_direct_bytes: int = setting(
        256 * _MIB,
        Kind.INT,
        "Memory of that JVM outside its heap. Half of it is for entries on their way to bookies; more wait their turn.",
        unit="bytes",
        rule=at_least(64 * _MIB),
    )
    bookkeeper_max_entry_bytes: int = setting(
        5 * _MIB,
        Kind.INT,
        "Largest entry; bookies must allow a little more (`nettyMaxFrameSizeBytes`). The broker's own may have 1 MiB, "
        "whatever stands here.",
        unit="bytes",
        rule=at_least(1),
        pulsar=("maxMessageSize",),
    )
    bookkeeper_jars: str = setting(
        "",
        Kind.STRING,
        "Directory with what `magnetar bookkeeper install` brings; empty for where it puts it by default.",
    )
    namespace_bundles: int = setting(
        4,
        Kind.INT,
        "Number of bundles of a namespace that is made, each owned by one broker.",
        rule=between(1, 1024),
        pulsar=("defaultNumberOfNamespaceBundles",),
    )
