"""``magnetar context``: clusters by name, with their addresses and credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin import contexts
from magnetar.admin.client_options import client_settings
from magnetar.admin.contexts import CommandContext
from magnetar.admin.credentials import layered, properties_of, security_of
from magnetar.admin.errors import Invalid, NotThere
from magnetar.cli.options import Json
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Clusters by name, with their addresses and credentials; no broker is asked.", no_args_is_help=True
)


def _names(incomplete: str) -> list[str]:
    try:
        return [each.name for each in contexts.read_contexts() if each.name.startswith(incomplete)]
    except Invalid:
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=_names)]


@app.command()
def add(
    name: Name,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers", "--bootstrap-server", "-b", metavar="HOST:PORT", help="Brokers to ask."
        ),
    ] = "",
    http_url: Annotated[
        str, typer.Option("--http-url", "--admin", metavar="URL", help="Admin REST to ask.")
    ] = "",
    schema_registry: Annotated[str, typer.Option(metavar="URL", help="Schema registry.")] = "",
    user: Annotated[str | None, typer.Option(metavar="NAME", help="User to log in as.")] = None,
    password: Annotated[str | None, typer.Option(metavar="TEXT", help="The password; prefer a file.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its content is stored; - is standard input.")
    ] = None,
    token: Annotated[str | None, typer.Option(metavar="TEXT", help="The token; prefer a file.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its content is stored; - is standard input.")
    ] = None,
    sasl_mechanism: Annotated[str | None, typer.Option(metavar="NAME", help="PLAIN by default.")] = None,
    tls_ca: Annotated[str | None, typer.Option(metavar="FILE", help="PEM; or 'system'.")] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate to show, PEM.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key, PEM.")] = None,
    tls_any_name: Annotated[
        str | None, typer.Option(metavar="yes|no", help="Accept certificates of any name.")
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file of Kafka client settings, which are stored as well."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Choose it for all commands.")] = False,
    json: Json = False,
) -> None:
    """Store a cluster; it replaces one of that name. The first one is in use."""
    options = {
        "user": user, "password": password, "password_file": password_file, "token": token,
        "token_file": token_file, "sasl_mechanism": sasl_mechanism, "tls_ca": tls_ca, "tls_cert": tls_cert,
        "tls_key": tls_key, "tls_any_name": tls_any_name,
    }  # fmt: skip
    given = {} if command_config is None else properties_of(command_config)
    settings = layered(given, client_settings(options))
    security_of(settings, f"context {name}")
    made = CommandContext(name, bootstrap_servers, http_url, schema_registry, settings, use)
    contexts.put_context(made)
    give(_shown_of(name), _shown, as_json=json)


@app.command("list")
def list_(json: Json = False) -> None:
    """List contexts."""
    give(tuple(each.without_secrets() for each in contexts.read_contexts()), _listed, as_json=json)


@app.command()
def use(name: Name, json: Json = False) -> None:
    """Choose the context that all commands use."""
    give(contexts.use_context(name).without_secrets(), _shown, as_json=json)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(metavar="NAME", autocompletion=_names)] = None,
    json: Json = False,
) -> None:
    """Show a context, or the one in use; secrets are not shown."""
    give(_shown_of(name), _shown, as_json=json)


@app.command()
def remove(name: Name, json: Json = False) -> None:
    """Delete a context and its credentials."""
    contexts.remove_context(name)
    give({"removed": name}, lambda each: [f"removed {each['removed']}"], as_json=json)


def _shown_of(name: str | None) -> CommandContext:
    found = contexts.find_context(name)
    if found is None:
        raise NotThere("no context is in use", "'magnetar context list' shows them; 'use NAME' chooses one.")
    return found.without_secrets()


def _listed(rows: tuple[CommandContext, ...]) -> Iterator[RenderableType]:
    if not rows:
        yield "no contexts"
        return
    yield table(
        ("", "context", "bootstrap servers", "HTTP", "user"),
        [
            (
                "*" if each.current else "",
                each.name,
                each.bootstrap_servers,
                each.http_url,
                each.settings.get("sasl.username"),
            )
            for each in rows
        ],
    )


def _shown(value: CommandContext) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("context", value.name),
            ("in use", value.current),
            ("bootstrap servers", value.bootstrap_servers or None),
            ("HTTP", value.http_url or None),
            ("schema registry", value.schema_registry or None),
            *sorted(value.settings.items()),
        ]
    )
