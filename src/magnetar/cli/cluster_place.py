"""Which cluster a command is about: a broker's file says so, or options do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import Invalid

if TYPE_CHECKING:
    from magnetar.doctor.cluster_doctor import Expected
    from magnetar.doctor.ledgers_cluster import ClusterPlace
    from magnetar.ledger.bookkeeper.bookie_login import BookieLogin
    from magnetar.ledger.bookkeeper.bookie_tls import BookieTls

Config = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="A broker's file, which says where the cluster is."),
]
Metadata = Annotated[
    str | None,
    typer.Option(
        envvar="MAGNETAR_METADATA",
        metavar="URL",
        help="Where the metadata are, as metadataStoreUrl has it: zk:HOST:PORT,HOST:PORT/PATH.",
    ),
]
Bookkeeper = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where bookies are known, as bookkeeperMetadataServiceUri has it."),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        envvar="MAGNETAR_METADATA_CONFIG",
        exists=True,
        dir_okay=False,
        help="ZooKeeper's client properties for TLS and logins, as metadataStoreConfigPath has them.",
    ),
]


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """Where it is, how it is come to, and what a broker's file expects to find there."""

    metadata: str
    bookkeeper: str
    client_config: str
    expected: Expected
    tls: BookieTls | None = None
    password: bytes = b""
    login: BookieLogin | None = None

    @property
    def place(self) -> ClusterPlace:
        """The same without what is expected."""
        from magnetar.doctor.ledgers_cluster import ClusterPlace

        return ClusterPlace(
            self.metadata, self.bookkeeper, self.client_config, self.tls, self.password, self.login
        )


def place_of(
    config: Path | None, metadata: str | None, bookkeeper: str | None, client_config: Path | None
) -> NamedCluster:
    """Return what the options mean; raise `Invalid`."""
    from magnetar.doctor.cluster_doctor import Expected

    if config is None:
        if metadata is None:
            raise Invalid(
                "nothing says which cluster", "Name it with --metadata zk:HOST:PORT/PATH or --config FILE."
            )
        return NamedCluster(_as_zookeepers(metadata), bookkeeper or "", str(client_config or ""), Expected())
    from magnetar.base.errors import BrokerError
    from magnetar.cli.broker import cluster_of
    from magnetar.logs.storage.cluster import bookie_login, bookie_tls
    from magnetar.node import setting_sources
    from magnetar.settings.cluster import ClusterSettings

    try:
        named = setting_sources.read_properties(config)
        settings = setting_sources.load(config, cluster_of(named), parts=(ClusterSettings,)).settings
        cluster, node = settings.of(ClusterSettings), settings.node
        tls = bookie_tls(cluster)
    except BrokerError as error:
        raise Invalid(str(error)) from error
    url = metadata or node.metadata_url
    if not url.startswith("zk:"):
        raise Invalid(f"{config} names no cluster", "Set metadataStoreUrl=zk:HOST:PORT/PATH there.")
    advertised = named.get("advertisedAddress", "")
    address = f"{advertised}:{named.get('webServicePort', '8080')}" if advertised else None
    has_number = {"node.id", "broker.id", "brokerId"} & set(named)
    expected = Expected(
        cluster.cluster_name if "clusterName" in named or "cluster.name" in named else None,
        node.node_id if has_number else -1,
        address,
        cluster.bookkeeper_ensemble_size,
    )
    return NamedCluster(
        _as_zookeepers(url),
        bookkeeper or cluster.bookkeeper_metadata_url,
        str(client_config or cluster.metadata_config_path),
        expected,
        tls,
        cluster.bookkeeper_password.encode(),
        bookie_login(cluster),
    )


def _as_zookeepers(url: str) -> str:
    return url if url.startswith("zk:") else f"zk:{url}"
