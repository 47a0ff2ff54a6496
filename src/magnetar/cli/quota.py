"""``magnetar quota``: how much Kafka's clients may, by user, client id and address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid
from magnetar.admin.quotas import (
    Entity,
    QuotasOf,
    delete_quotas,
    list_quotas,
    named,
    parse_quotas,
    set_quotas,
)
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from magnetar.cli.output import give, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Show and change how much Kafka's clients may, as kafka-configs --entity-type users, clients and ips does.",
    no_args_is_help=True,
)

User = Annotated[str | None, typer.Option("--user", help="Of this user.")]
Users = Annotated[bool, typer.Option("--user-defaults", help="Of each user that has none of its own.")]
Client = Annotated[str | None, typer.Option("--client", metavar="CLIENT_ID", help="Of this client id.")]
Clients = Annotated[
    bool, typer.Option("--client-defaults", help="Of each client id that has none of its own.")
]
Ip = Annotated[str | None, typer.Option("--ip", metavar="HOST", help="Of this address.")]
Ips = Annotated[bool, typer.Option("--ip-defaults", help="Of each address that has none of its own.")]


@app.command(name="list")
def list_(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show all quotas."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(list_quotas(cluster), _shown, as_json=json)


@app.command(name="set")
def set_(
    quotas: Annotated[list[str], typer.Argument(metavar="NAME=NUMBER...")],
    user: User = None,
    user_defaults: Users = False,
    client: Client = None,
    client_defaults: Clients = False,
    ip: Ip = None,
    ip_defaults: Ips = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    wanted = parse_quotas(quotas)
    entity = _entity((user, user_defaults), (client, client_defaults), (ip, ip_defaults))
    with ClusterAdmin(bootstrap_server) as cluster:
        give(set_quotas(cluster, entity, wanted), _shown, as_json=json)


@app.command()
def delete(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Without any, all of them.")
    ] = None,
    user: User = None,
    user_defaults: Users = False,
    client: Client = None,
    client_defaults: Clients = False,
    ip: Ip = None,
    ip_defaults: Ips = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Take quotas away; whoever had them may do as much as it likes, or as the next that fits says."""
    entity = _entity((user, user_defaults), (client, client_defaults), (ip, ip_defaults))
    with ClusterAdmin(bootstrap_server) as cluster:
        give(delete_quotas(cluster, entity, names or []), _shown, as_json=json)


def _entity(*parts: tuple[str | None, bool]) -> Entity:
    entity: dict[str, str | None] = {}
    for kind, (name, defaults) in zip(("user", "client-id", "ip"), parts, strict=True):
        if name is not None and defaults:
            raise Invalid(f"which {kind}: {name}, or each that has no quota of its own?")
        if name is not None or defaults:
            entity[kind] = name
    if not entity:
        raise Invalid("whose quotas?", "Name a user, a client id, both, or an address; or their defaults.")
    return entity


def _shown(rows: tuple[QuotasOf, ...]) -> Iterator[RenderableType]:
    if not rows:
        yield "There are no quotas."
        return
    cells = [(named(row.entity), key, f"{value:.15g}") for row in rows for key, value in row.quotas.items()]
    yield table(("of", "quota", "#value"), cells)
