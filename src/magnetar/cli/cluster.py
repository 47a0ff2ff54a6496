"""``magnetar cluster``: a cluster's brokers, bookies and metadata, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from magnetar.cli.cluster_place import Bookkeeper, ClientConfig, Config, Metadata, place_of
from magnetar.cli.options import Json
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.doctor.cluster_doctor import Diagnosis
    from magnetar.doctor.cluster_state import ClusterState

app = typer.Typer(help="Look at a cluster of brokers, and at what is wrong with it.", no_args_is_help=True)


@app.command()
def status(
    config: Config = None,
    metadata: Metadata = None,
    bookkeeper: Bookkeeper = None,
    metadata_config: ClientConfig = None,
    json: Json = False,
) -> None:
    """Show brokers and what they have, bookies, and ZooKeeper. Reads ZooKeeper itself, so no broker has to answer."""
    from magnetar.doctor.cluster_state import look

    place = place_of(config, metadata, bookkeeper, metadata_config)
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
    from magnetar.doctor import cluster_doctor, cluster_state

    place = place_of(config, metadata, bookkeeper, metadata_config)
    found = cluster_doctor.diagnose(
        cluster_state.look(place.metadata, place.bookkeeper, place.client_config), place.expected
    )
    give(found, _told, as_json=json)
    if not found.is_well:
        raise typer.Exit(1)


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
