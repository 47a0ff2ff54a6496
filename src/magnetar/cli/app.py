"""All commands put together, and how each ends: its exit status, and an error that says what to do next."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.models

from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.plain import plain
from magnetar.base.printable import printable_json, printable_lines
from magnetar.cli.connection import connects

GROUPS = (
    "topic", "group", "txn", "config", "ledger", "migrate", "cluster", "bookkeeper", "token", "permission", "user",
    "quota", "pipeline", "table", "backup", "context",
)  # fmt: skip
COMMANDS = (
    "produce", "consume", "explain", "why", "health", "doctor", "bundle", "audit", "restore", "upgrade", "help",
)  # fmt: skip
"""The modules of this folder with commands, by the commands' names. Which of them is loaded, the arguments say."""
_NAMED = {"help": "help_"}
"""Functions that cannot have their command's name."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"magnetar {version('magnetar')}")
        raise typer.Exit


def _common(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A broker for Kafka clients on Pulsar's storage model, and the tools to operate it."""


def standalone(
    data: Annotated[Path | None, typer.Option(help="Directory of ledgers, journal and metadata.")] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to serve; port 0 chooses a free one.")
    ] = None,
    pulsar: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve Pulsar clients; port 0 chooses a free one."),
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


def broker(
    config: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="A broker.conf of Pulsar, or our own settings.")
    ],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting; repeatable.")
    ] = None,
) -> None:
    """Serve as one broker of a cluster in the foreground, on ZooKeeper and BookKeeper; SIGTERM ends it."""
    from magnetar.cli.broker import run

    raise typer.Exit(run(config, set_ or []))


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


def serve_tests(
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting; repeatable.")
    ] = None,
    ready_fd: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="File descriptor for the line of JSON with all addresses; 1 by default."
        ),
    ] = None,
) -> None:
    """Serve a test suite: a broker on a temporary directory and free ports, which ends with its standard input."""
    from magnetar.cli.testing import run

    raise typer.Exit(run(set_ or [], ready_fd))


def command_line(names: Iterable[str] = (*GROUPS, *COMMANDS)) -> typer.Typer:
    """Return the command line with what serves, and with these commands and groups of commands."""
    made = typer.Typer(
        name="magnetar",
        help=_common.__doc__,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_common)
    for serves in (standalone, broker, proxy):
        made.command()(serves)
    made.command("testing")(serve_tests)
    for name in names:
        module = import_module(f"magnetar.cli.{name}")
        if name in GROUPS:
            for each in module.app.registered_commands:
                each.callback = connects(each.callback)
                _whole_line(each)
            made.add_typer(module.app, name=name, short_help=module.app.info.help)
        else:
            command = getattr(module, _NAMED.get(name, name))
            made.command(name)(connects(command))
    for each in made.registered_commands:
        _whole_line(each)
    return made


def _whole_line(command: typer.models.CommandInfo) -> None:
    """Set what lists of commands show to a description's first line: without it they cut it at 45 letters."""
    told = (command.callback.__doc__ or "").strip() if command.callback is not None else ""
    command.short_help = command.short_help or command.help or told.partition("\n")[0]


def __getattr__(name: str) -> Any:
    """Return ``app``, all commands put together, to those who describe them."""
    if name == "app":
        return command_line()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run_app(arguments: list[str]) -> int:
    """Run one command and give its exit status."""
    known = arguments[:1] if arguments and arguments[0] in (*GROUPS, *COMMANDS) else None
    try:
        command_line(known or (*GROUPS, *COMMANDS))(arguments)
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
    in_group = arguments[0] in GROUPS
    return f"See 'magnetar {' '.join(arguments[: 1 + in_group])} --help'."


def _complain(error: AdminError, next_step: str, *, as_json: bool) -> None:
    if as_json:
        told = {"kind": type(error).__name__, "message": str(error), "next_step": next_step}
        print(printable_json(json.dumps({"error": plain(told)}, ensure_ascii=False)), file=sys.stderr)
        return
    print(printable_lines(f"magnetar: {error}"), file=sys.stderr)
    if next_step:
        print(printable_lines(f"  -> {next_step}"), file=sys.stderr)
