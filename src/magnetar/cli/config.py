"""``magnetar config``: what is set for brokers and topics, where it comes from, and how to change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.configs import (
    Configs,
    ResourceKind,
    SettingRow,
    all_settings,
    alter_configs,
    describe_configs,
    parse_configs,
)
from magnetar.admin.errors import Invalid
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, DryRun, Json, topic_names
from magnetar.cli.output import give, table
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Show and change configurations of brokers and topics.", no_args_is_help=True)

Topic = Annotated[str | None, typer.Option("--topic", "-t", help="A topic's.", autocompletion=topic_names)]
Broker = Annotated[str | None, typer.Option("--broker", help="This broker's, by its number.")]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="What is set for all brokers together.")]
Loggers = Annotated[
    bool,
    typer.Option("--loggers", help="Levels of this broker's loggers, until it ends: magnetar.kafka=DEBUG."),
]


@app.command()
def show(
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    loggers: Loggers = False,
    every: Annotated[bool, typer.Option("--all", "-a", help="Show defaults too.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show what is set, and where; of the broker that answers unless something else is named."""
    with ClusterAdmin(bootstrap_server) as cluster:
        found = describe_configs(cluster, *_resource(cluster, topic, broker, all_brokers, loggers))
    if not every:
        kept = tuple(row for row in found.configs if row.source != "default")
        found = Configs(found.kind, found.name, kept)
    give(found, _shown, as_json=json)


@app.command()
def alter(
    changes: Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE...")] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Return to what it follows.")
    ] = None,
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    loggers: Loggers = False,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Change configurations while the broker runs."""
    wanted = parse_configs(changes or []) | dict.fromkeys(unset or [])
    if not wanted:
        raise Invalid("nothing to change", "Give NAME=VALUE or --unset NAME.")
    with ClusterAdmin(bootstrap_server) as cluster:
        resource = _resource(cluster, topic, broker, all_brokers, loggers)
        altered = alter_configs(cluster, *resource, wanted, dry_run=dry_run)
    kept = tuple(row for row in altered.configs if row.name in wanted)
    give(Configs(altered.kind, altered.name, kept), _shown, as_json=json)


@app.command()
def settings(
    search: Annotated[str | None, typer.Argument(help="Only those that mention this.")] = None,
    json: Json = False,
) -> None:
    """List every setting of the broker with what it does."""
    found = tuple(
        row
        for row in all_settings()
        if search is None or search.lower() in f"{row.name} {' '.join(row.also)} {row.documentation}".lower()
    )
    give(found, _settings, as_json=json)


def config_table(configs: Configs) -> RenderableType:
    """Return configurations as a table, those that somebody set first."""
    rows = sorted(configs.configs, key=lambda row: (row.source == "default", row.name))
    return table(
        ("configuration", "value", "source", "read only"),
        [(row.name, row.value or "-", row.source, row.read_only or "") for row in rows],
    )


def _resource(
    cluster: ClusterAdmin, topic: str | None, broker: str | None, all_brokers: bool, loggers: bool
) -> tuple[ResourceKind, str]:
    if sum((topic is not None, broker is not None or loggers, all_brokers)) > 1:
        raise Invalid("whose configurations?", "Give one of --topic, --broker and --all-brokers.")
    if topic is not None:
        return ResourceKind.TOPIC, topic
    if all_brokers:
        return ResourceKind.BROKER, ""
    if broker is None:
        asked = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        broker = str(cluster.ask(asked, MetadataResponse).controller_id)
    return ResourceKind.BROKER_LOGGER if loggers else ResourceKind.BROKER, broker


def _shown(configs: Configs) -> Iterator[RenderableType]:
    if configs.configs:
        yield config_table(configs)
    else:
        yield f"{configs.kind} {configs.name}: nothing is set; --all shows the defaults".replace(" :", ":")


def _settings(rows: tuple[SettingRow, ...]) -> Iterator[RenderableType]:
    yield table(
        ("setting", "default", "while running", "what it does"),
        [
            (row.name, f"{row.default} {row.unit}".strip() or "-", row.while_running or "", row.documentation)
            for row in rows
        ],
    )
