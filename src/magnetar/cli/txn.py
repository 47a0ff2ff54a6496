"""``magnetar txn``: show transactions, and abort one that holds readers up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin import transactions
from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid
from magnetar.admin.partition_name import parse_place
from magnetar.admin.transactions import TransactionAborted, TransactionDetail, TransactionRow
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Yes, confirm
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Show transactions, and abort one that holds readers up.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TRANSACTIONAL_ID")]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state, as Ongoing; repeatable.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List transactional ids."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(transactions.list_transactions(cluster, state or ()), _listed, as_json=json)


@app.command()
def describe(name: Name, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show a transactional id: its producer, and the partitions of its transaction."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(transactions.describe_transaction(cluster, name), _described, as_json=json)


@app.command()
def abort(
    name: Annotated[str | None, typer.Argument(metavar="[TRANSACTIONAL_ID]")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="TOPIC-N", help="In this partition alone.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", help="Whose transaction hangs there.")
    ] = None,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Abort the transaction that an id has open, or one that hangs in a partition; its producer is fenced."""
    in_partition = partition is not None and producer_id is not None
    if (name is None) != in_partition or (name is not None and (partition, producer_id) != (None, None)):
        raise Invalid("which transaction?", "Give a transactional id, or both --partition and --producer-id.")
    with ClusterAdmin(bootstrap_server) as cluster:
        if name is not None:
            confirm(f"Abort what {name} has open?", yes=yes)
            done = transactions.abort_transaction(cluster, name)
        else:
            assert partition is not None
            assert producer_id is not None
            confirm(f"Abort what producer {producer_id} has open in {partition}?", yes=yes)
            done = transactions.abort_in_partition(cluster, parse_place(partition), producer_id)
    give(done, _aborted, as_json=json)


def _listed(rows: list[TransactionRow]) -> Iterator[RenderableType]:
    if not rows:
        yield "no transactions"
        return
    yield table(
        ("transactional id", "#producer id", "state"),
        [(row.transactional_id, row.producer_id, row.state) for row in rows],
    )


def _described(found: TransactionDetail) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("transactional id", found.transactional_id),
            ("producer", f"{found.producer_id}, epoch {found.producer_epoch}"),
            ("state", found.state),
            ("timeout ms", found.timeout_ms),
            ("open for ms", "-" if found.open_ms is None else found.open_ms),
            ("partitions", ", ".join(found.partitions) or "-"),
        ]
    )


def _aborted(done: TransactionAborted) -> Iterator[RenderableType]:
    whose = done.transactional_id or f"producer {done.producer_id}"
    yield f"aborted what {whose} had open in {', '.join(done.partitions)}"
