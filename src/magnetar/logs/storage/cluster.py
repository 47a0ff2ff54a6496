"""What the brokers of a cluster share: metadata in ZooKeeper (``zk:``), ledgers on bookies (``bookkeeper:``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from magnetar.base.errors import InvalidConfig
from magnetar.base.start_steps import step
from magnetar.ledger.bookie_racks import BookiePlacement
from magnetar.ledger.bookkeeper.bookie_login import BookieLogin
from magnetar.ledger.bookkeeper.bookie_tls import BookieTls
from magnetar.ledger.errors import StorageNotReady
from magnetar.ledger.port import LedgerEngine
from magnetar.logs.storage.factories import MetadataStoreFactory, StorageEngineFactory
from magnetar.logs.storage.formatted import check_formatted
from magnetar.logs.storage.tiering import make_tiers
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.port import MetadataStore
from magnetar.metadata.zookeeper_probe import probe
from magnetar.metadata.zookeeper_security import InvalidZooKeeperConfig, ZooKeeperSecurity
from magnetar.settings.cluster import ClusterSettings
from magnetar.settings.settings import Settings

_log = logging.getLogger("magnetar.broker")
_EXTRA = "pip install 'magnetar[cluster]'"


class ZooKeeperAddress(NamedTuple):
    """Servers as ``host:port``, separated by commas, and the path below which all lies."""

    hosts: str
    root: str


def zookeeper_address(url: str) -> ZooKeeperAddress:
    """Return what ``zk:host:port,host:port/path`` means; Pulsar's form, and the one with ``//``."""
    hosts, slash, path = url.partition(":")[2].removeprefix("//").partition("/")
    servers = [each.strip() for each in hosts.split(",")]
    for each in servers:
        host, _, port = each.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidConfig(
                f"metadata.url={url}: {each!r} is not HOST:PORT; zk:HOST:PORT,HOST:PORT/PATH is the form"
            )
    return ZooKeeperAddress(",".join(servers), (slash + path).rstrip("/"))


def bookies_address(uri: str) -> ZooKeeperAddress | None:
    """Return where bookies are known, without the ``/ledgers`` at the end; None if that is not said.

    BookKeeper writes ``zk+hierarchical://host:port;host:port/ledgers``, Pulsar also ``metadata-store:zk:...``.
    """
    if not uri.strip():
        return None
    _, found, rest = uri.strip().partition("zk")
    if not found:
        raise InvalidConfig(f"bookkeeper.metadata.url={uri}: zk://HOST:PORT/PATH/ledgers is the form")
    address = zookeeper_address("zk:" + rest.partition(":")[2].replace(";", ","))
    if not address.root.endswith("/ledgers"):
        raise InvalidConfig(f"bookkeeper.metadata.url={uri}: it ends with /ledgers, as bookies are set up")
    return ZooKeeperAddress(address.hosts, address.root.removesuffix("/ledgers"))


class ZooKeeperStores(MetadataStoreFactory):
    """``zk:host:port,host:port/path``; Pulsar's ``metadataStoreUrl``."""

    scheme = "zk"

    async def open(self, url: str, settings: Settings, held: DirectoryLock) -> MetadataStore:
        try:
            from magnetar.metadata.zookeeper import ZooKeeperStore
        except ImportError as error:
            raise InvalidConfig(f"metadata.url={url} needs kazoo: {_EXTRA}") from error
        address, cluster = zookeeper_address(url), settings.of(ClusterSettings)
        security, session_s = zookeeper_security(cluster), cluster.metadata_session_ms / 1000
        on_bookies = settings.node.storage_url.startswith("bookkeeper:")
        found = _jars(cluster) if on_bookies else []
        with step(_log, "ZooKeeper"):
            await probe(address.hosts, security)
        if on_bookies:
            named = bookies_address(cluster.bookkeeper_metadata_url)
            if named is not None and named.hosts != address.hosts:
                with step(_log, "the ZooKeeper of the bookies"):
                    await probe(named.hosts, security)
            await check_formatted(*(named or address), security, session_s, is_named=named is not None)
            # To start a JVM takes Python's lock for seconds, in which a session would be lost.
            with step(_log, "Java"):
                await _started_jvm(found, cluster)
        with step(_log, "a session at ZooKeeper"):
            return await ZooKeeperStore.open(
                address.hosts,
                address.root,
                session_seconds=session_s,
                security=security,
            )


def zookeeper_security(cluster: ClusterSettings) -> ZooKeeperSecurity:
    """Return how ZooKeeper is come to; raise `InvalidConfig` for a file that cannot be."""
    try:
        return ZooKeeperSecurity.read(cluster.metadata_config_path)
    except InvalidZooKeeperConfig as error:
        raise InvalidConfig(f"metadata.config.path: {error}") from error


def bookie_login(cluster: ClusterSettings) -> BookieLogin | None:
    """Return how BookKeeper's client logs in at bookies, None for not at all."""
    if not cluster.bookkeeper_client_authentication_plugin:
        return None
    return BookieLogin(
        cluster.bookkeeper_client_authentication_plugin,
        cluster.bookkeeper_client_authentication_parameters_name,
        cluster.bookkeeper_client_authentication_parameters,
    )


def bookie_tls(cluster: ClusterSettings) -> BookieTls | None:
    """Return TLS to bookies, None for none; raise `InvalidConfig` for what is missing."""
    named = {
        "bookkeeper.tls.trust.certs.file.path": cluster.bookkeeper_tls_trust_certs_file_path,
        "bookkeeper.tls.certificate.file.path": cluster.bookkeeper_tls_certificate_file_path,
        "bookkeeper.tls.key.file.path": cluster.bookkeeper_tls_key_file_path,
    }
    if not cluster.bookkeeper_tls_client_authentication:
        if any(named.values()):
            _log.warning(
                "bookies are talked to without TLS, though %s is set: bookkeeperTLSClientAuthentication=true begins it",
                next(name for name, path in named.items() if path),
            )
        return None
    if cluster.bookkeeper_tls_key_file_type != "PEM":  # such a file has the certificate as well
        del named["bookkeeper.tls.certificate.file.path"]
    for name, path in named.items():
        if not path:
            raise InvalidConfig(f"bookkeeper.tls.client.authentication=true needs {name}")
        if not Path(path).is_file():
            raise InvalidConfig(f"{name}={path}: there is no such file")
    return BookieTls(
        trust_file=cluster.bookkeeper_tls_trust_certs_file_path,
        certificate_file=cluster.bookkeeper_tls_certificate_file_path,
        key_file=cluster.bookkeeper_tls_key_file_path,
        key_type=cluster.bookkeeper_tls_key_file_type,
        trust_type=cluster.bookkeeper_tls_trust_cert_types,
        key_password_file=cluster.bookkeeper_tls_key_store_password_path,
        trust_password_file=cluster.bookkeeper_tls_trust_store_password_path,
        verify_host=cluster.bookkeeper_tls_hostname_verification_enabled,
        provider=cluster.bookkeeper_tls_provider_factory_class,
        refresh_s=cluster.bookkeeper_tls_cert_files_refresh_duration_seconds,
    )


def _jars(cluster: ClusterSettings) -> list[Path]:
    from magnetar.ledger.bookkeeper import jars

    try:
        return jars.installed(Path(cluster.bookkeeper_jars) if cluster.bookkeeper_jars else None)
    except jars.JarsError as error:
        raise StorageNotReady(
            str(error), "bookkeeper.jars names another directory; docs/cluster.md says what is brought."
        ) from error


async def _started_jvm(found: Sequence[Path], cluster: ClusterSettings) -> None:
    try:
        from magnetar.ledger.bookkeeper.bookies import load_classes
    except ImportError as error:
        raise InvalidConfig(f"storage.url=bookkeeper: needs JPype1: {_EXTRA}") from error
    try:
        load_classes(found, cluster.bookkeeper_heap_bytes, cluster.bookkeeper_direct_bytes)
    except StorageNotReady:
        raise
    except Exception as error:  # JPype's TypeError for a class that is not there, or whatever Java throws
        raise _unloadable(cluster, error) from error


def _unloadable(cluster: ClusterSettings, error: Exception) -> StorageNotReady:
    """Return what is wrong with jars of which Java does not load the classes."""
    from magnetar.ledger.bookkeeper import jars

    step = "'magnetar bookkeeper install' brings what is missing; bookkeeper.jars names another directory."
    try:
        jars.verify(Path(cluster.bookkeeper_jars) if cluster.bookkeeper_jars else None)
    except jars.JarsError as wrong:
        return StorageNotReady(str(wrong), step)
    return StorageNotReady(
        f"Java does not load BookKeeper's client from its jars: {error}",
        "Look whether it is Java 17 or newer (java -version; JAVA_HOME names another).",
    )


def _placement(cluster: ClusterSettings) -> BookiePlacement:
    return BookiePlacement(
        rack_aware=cluster.bookkeeper_client_rackaware_policy_enabled,
        region_aware=cluster.bookkeeper_client_regionaware_policy_enabled,
        min_racks=cluster.bookkeeper_client_min_num_racks_per_write_quorum,
        enforce_min_racks=cluster.bookkeeper_client_enforce_min_num_racks_per_write_quorum,
        isolation_groups=cluster.bookkeeper_client_isolation_groups,
        secondary_groups=cluster.bookkeeper_client_secondary_isolation_groups,
    )


class BookKeeperEngines(StorageEngineFactory):
    """``bookkeeper:`` are the bookies that the metadata store knows."""

    scheme = "bookkeeper"

    async def open(
        self, url: str, settings: Settings, held: DirectoryLock, store: MetadataStore
    ) -> LedgerEngine:
        if settings.node.metadata_url.partition(":")[0] != "zk":
            raise InvalidConfig(f"storage.url={url} needs metadata.url=zk:...: its ledgers are noted there")
        try:
            from magnetar.ledger.bookkeeper.bookies import Bookies, Quorums, connected
            from magnetar.ledger.bookkeeper.engine import BookKeeperEngine
        except ImportError as error:
            raise InvalidConfig(f"storage.url={url} needs JPype1: {_EXTRA}") from error
        cluster = settings.of(ClusterSettings)
        sizes = (
            cluster.bookkeeper_ensemble_size,
            cluster.bookkeeper_write_quorum,
            cluster.bookkeeper_ack_quorum,
        )
        if list(sizes) != sorted(sizes, reverse=True):
            raise InvalidConfig(
                "bookkeeper.ensemble.size, bookkeeper.write.quorum and bookkeeper.ack.quorum are {}, {} and {}:"
                " none may be larger than the one before".format(*sizes)
            )
        found = _jars(cluster)
        address = bookies_address(cluster.bookkeeper_metadata_url) or zookeeper_address(
            settings.node.metadata_url
        )
        bookies = Bookies(
            address.hosts,
            address.root,
            found,
            quorums=Quorums(*sizes),
            password=cluster.bookkeeper_password.encode(),
            add_timeout_s=cluster.bookkeeper_add_timeout_s,
            heap_bytes=cluster.bookkeeper_heap_bytes,
            direct_bytes=cluster.bookkeeper_direct_bytes,
            max_entry_bytes=max(cluster.bookkeeper_max_entry_bytes, 1 << 20),
            tls=bookie_tls(cluster),
            login=bookie_login(cluster),
            properties=zookeeper_security(cluster).for_java,
            placement=_placement(cluster),
        )
        session_s, security = cluster.metadata_session_ms / 1000, zookeeper_security(cluster)
        bookies.metadata = lambda: connected(address.hosts, address.root, session_s, security)
        return BookKeeperEngine(
            bookies,
            store,
            tail_bytes=cluster.bookkeeper_cache_bytes,
            make_tiers=lambda: make_tiers(settings),
        )
