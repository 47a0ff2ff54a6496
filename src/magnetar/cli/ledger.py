"""``magnetar ledger``: the files that hold a partition; look at them, check them, mend them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.client import ask
from magnetar.admin.data_directory import DataDirectory
from magnetar.admin.errors import Unreachable
from magnetar.admin.ledgers_of import PartitionLedgers
from magnetar.admin.place import parse_place
from magnetar.admin.whereabouts import data_directory
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Data, Json, partition_names
from magnetar.cli.output import give, moment, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="The files that hold a partition: look, check, mend.", no_args_is_help=True)


@app.command("list")
def list_(
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", autocompletion=partition_names)],
    data: Data = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the ledgers of a partition, oldest first."""
    topic, index = parse_place(partition)
    root = data_directory(data, bootstrap_server)
    give(_ledgers(root, topic, index), _listed, as_json=json)


def _ledgers(root: Path, topic: str, partition: int) -> PartitionLedgers:
    try:
        return cast(PartitionLedgers, ask(root, "ledgers", topic=topic, partition=partition))
    except Unreachable:
        with DataDirectory(root) as directory:
            return directory.ledgers(topic, partition)


def _listed(value: PartitionLedgers) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("partition", f"{value.topic}-{value.partition}"),
            ("readable from", value.first_offset),
            ("next offset", value.next_offset),
            ("flush", value.flush),
        ]
    )
    yield table(
        ("#ledger", "#first", "#last", "#entries", "#size", "latest record", "created", "sealed"),
        [
            (
                row.ledger,
                row.first_offset,
                row.last_offset if row.entries else "-",
                row.entries,
                size(row.size),
                moment(row.max_timestamp),
                moment(row.created),
                row.sealed,
            )
            for row in value.ledgers
        ],
    )
