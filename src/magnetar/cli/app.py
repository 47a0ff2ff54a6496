"""All commands put together, and how each ends: its exit status, and an error that says what to do next."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.plain import plain
from magnetar.cli import (
    audit,
    bookkeeper,
    cluster,
    config,
    consume,
    explain,
    group,
    ledger,
    migrate,
    permission,
    pipeline,
    produce,
    quota,
    restore,
    table,
    token,
    topic,
    txn,
    user,
    why,
)

app = typer.Typer(
    name="magnetar",
    help="A broker for Kafka's clients on Pulsar's storage model, and an operator's hand for it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"magnetar {version('magnetar')}")
        raise typer.Exit


@app.callback()
def _common(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A broker for Kafka's clients on Pulsar's storage model, and an operator's hand for it."""


@app.command()
def standalone(
    data: Annotated[Path | None, typer.Option(help="Directory of ledgers, journal and metadata.")] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to serve; port 0 chooses a free one.")
    ] = None,
    pulsar: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve Pulsar's clients; port 0 chooses a free one."),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve Pulsar's admin REST; port 0 chooses a free one."
        ),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve the schema registry; port 0 chooses a free one."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many processes serve the directory together; 1 by default."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Kafka's server.properties, or Pulsar's or KoP's *.conf.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting; repeatable.")
    ] = None,
) -> None:
    """Serve as one broker in the foreground, on embedded storage; SIGTERM ends it."""
    from magnetar.cli.standalone import run

    raise typer.Exit(run(data, kafka, pulsar, http, schema_registry, config, set_ or [], workers=workers))


@app.command()
def broker(
    config: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="Pulsar's broker.conf, or our own settings.")
    ],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting; repeatable.")
    ] = None,
) -> None:
    """Serve as one broker of a cluster in the foreground, on ZooKeeper and BookKeeper; SIGTERM ends it."""
    from magnetar.cli.broker import run

    raise typer.Exit(run(config, set_ or []))


@app.command()
def proxy(
    config: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Pulsar's proxy.conf, or our own settings."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting; repeatable.")
    ] = None,
) -> None:
    """Serve clients that cannot reach a cluster's brokers at one address, in the foreground; SIGTERM ends it."""
    from magnetar.cli.proxy import run

    raise typer.Exit(run(config, set_ or []))


app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(config.app, name="config")
app.add_typer(ledger.app, name="ledger")
app.add_typer(migrate.app, name="migrate")
app.add_typer(cluster.app, name="cluster")
app.add_typer(bookkeeper.app, name="bookkeeper")
app.add_typer(token.app, name="token")
app.add_typer(permission.app, name="permission")
app.add_typer(user.app, name="user")
app.add_typer(quota.app, name="quota")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(table.app, name="table")
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(explain.explain)
app.command()(why.why)
app.command()(audit.audit)
app.command()(restore.restore)


def run_app(arguments: list[str]) -> int:
    """Run one command and give its exit status."""
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except AdminError as error:
        _complain(error, _next_step(error, arguments), as_json="--json" in arguments)
        return error.status
    except OSError as error:
        if error.filename is None:
            raise
        said = AdminError(f"{error.filename}: {error.strerror}")
        step = "Look at the path and at its rights: a data directory belongs to the user its broker runs as."
        _complain(said, step, as_json="--json" in arguments)
        return said.status
    return 0


def _next_step(error: AdminError, arguments: list[str]) -> str:
    """Return what the error says to do now; for a usage error that says nothing, where the usage is explained."""
    if error.next_step or not isinstance(error, Invalid):
        return error.next_step
    in_group = arguments[0] in {group.name for group in app.registered_groups}
    return f"See 'magnetar {' '.join(arguments[: 1 + in_group])} --help'."


def _complain(error: AdminError, next_step: str, *, as_json: bool) -> None:
    if as_json:
        told = {"kind": type(error).__name__, "message": str(error), "next_step": next_step}
        print(json.dumps({"error": plain(told)}, ensure_ascii=False), file=sys.stderr)
        return
    print(f"magnetar: {error}", file=sys.stderr)
    if next_step:
        print(f"  -> {next_step}", file=sys.stderr)
