"""``magnetar cluster``: a cluster's brokers, bookies and metadata, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import Invalid
from magnetar.cli.options import Json
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.admin.cluster_doctor import Diagnosis, Expected
    from magnetar.admin.cluster_state import ClusterState

app = typer.Typer(help="Look at a cluster of brokers, and at what is wrong with it.", no_args_is_help=True)

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
class _Place:
    metadata: str
    bookkeeper: str
    client_config: str
    expected: Expected


@app.command()
def status(
    config: Config = None,
    metadata: Metadata = None,
    bookkeeper: Bookkeeper = None,
    metadata_config: ClientConfig = None,
    json: Json = False,
) -> None:
    """Show brokers and what they have, bookies, and ZooKeeper. Reads ZooKeeper itself, so no broker has to answer."""
    from magnetar.admin.cluster_state import look

    place = _place(config, metadata, bookkeeper, metadata_config)
    give(look(place.metadata, place.bookkeeper, place.client_config), _shown, as_json=json)


@app.command()
def doctor(
    config: Config = None,
    metadata: Metadata = None,
    bookkeeper: Bookkeeper = None,
    metadata_config: ClientConfig = None,
    json: Json = False,
) -> None:
    """Say what is wrong with a cluster, and what to do; ends with 1 if something does not work.

    With a broker's file, that is compared with what is there as well: try it before the broker is started.
    """
    from magnetar.admin.cluster_doctor import diagnose
    from magnetar.admin.cluster_state import look

    place = _place(config, metadata, bookkeeper, metadata_config)
    found = diagnose(look(place.metadata, place.bookkeeper, place.client_config), place.expected)
    give(found, _told, as_json=json)
    if not found.is_well:
        raise typer.Exit(1)


def _place(
    config: Path | None, metadata: str | None, bookkeeper: str | None, client_config: Path | None
) -> _Place:
    from magnetar.admin.cluster_doctor import Expected

    if config is None:
        if metadata is None:
            raise Invalid(
                "nothing says which cluster", "Name it with --metadata zk:HOST:PORT/PATH or --config FILE."
            )
        return _Place(_as_zookeepers(metadata), bookkeeper or "", str(client_config or ""), Expected())
    from magnetar.broker import setting_sources
    from magnetar.broker.cluster_settings import ClusterSettings
    from magnetar.broker.errors import BrokerError
    from magnetar.cli.broker import cluster_of

    try:
        named = setting_sources.read_properties(config)
        settings = setting_sources.load(config, cluster_of(named), parts=(ClusterSettings,)).settings
    except BrokerError as error:
        raise Invalid(str(error)) from error
    cluster, node = settings.of(ClusterSettings), settings.node
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
    secured = str(client_config or cluster.metadata_config_path)
    return _Place(_as_zookeepers(url), bookkeeper or cluster.bookkeeper_metadata_url, secured, expected)


def _as_zookeepers(url: str) -> str:
    return url if url.startswith("zk:") else f"zk:{url}"


def _shown(state: ClusterState) -> Iterator[RenderableType]:
    owned = sum(each.owner is not None for each in state.bundles)
    servers = [
        f"{each.server} ({each.trouble or ', '.join(filter(None, (each.mode, each.version))) or 'says nothing'})"
        for each in state.zookeeper
    ]
    yield pairs(
        [
            ("cluster", ", ".join(state.names) or None),
            ("metadata", state.metadata),
            ("ZooKeeper", ", ".join(servers)),
            ("controller", next((each.node_id for each in state.brokers if each.is_controller), None)),
            ("bundles", f"{owned} of {len(state.bundles)} have an owner"),
            ("under-replicated ledgers", state.under_replicated),
        ]
    )
    yield table(
        (
            "#broker",
            "address",
            "version",
            "rack",
            "#bundles",
            "#topics",
            "#msg/s in",
            "#msg/s out",
            "#cpu %",
            "listeners",
        ),
        [
            (
                each.node_id if each.node_id >= 0 else "Pulsar's",
                each.name,
                each.version,
                each.rack,
                each.bundles,
                each.load.get("numTopics"),
                _number(each.load.get("msgRateIn")),
                _number(each.load.get("msgRateOut")),
                _number((each.load.get("cpu") or {}).get("usage")),
                ", ".join(f"{e.listener}{' (unreachable)' if e.trouble else ''}" for e in each.endpoints),
            )
            for each in state.brokers
        ],
    )
    yield table(("bookie", "state"), [(each.bookie, each.state) for each in state.bookies])
    yield table(
        ("bundle", "#owner", "#epoch"), [(each.bundle, each.owner, each.epoch) for each in state.bundles]
    )


_BROKERS = (
    "#broker", "address", "version", "rack", "#bundles", "#topics", "#msg/s in", "#msg/s out", "#cpu %", "listeners"
)  # fmt: skip


def _number(value: object) -> str | None:
    return f"{value:.0f}" if isinstance(value, int | float) else None


def _told(found: Diagnosis) -> Iterator[RenderableType]:
    if not found.findings:
        yield "Nothing is wrong."
    for each in found.findings:
        yield f"{each.severity}: {each.what}"
        yield f"  -> {each.next_step}"
