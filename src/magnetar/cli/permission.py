"""``magnetar permission``: what roles may do, and granting and revoking it, in the running broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.errors import Invalid
from magnetar.admin.permissions import GrantsOf, Rows
from magnetar.admin.whereabouts import way_to_ask
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Admin, Bootstrap, Data, Json
from magnetar.cli.output import give, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Show, grant and revoke what roles may do, as pulsar-admin does.", no_args_is_help=True
)

Target = Annotated[str, typer.Argument(metavar="TENANT/NAMESPACE | TOPIC", help="On what.")]
Role = Annotated[
    str, typer.Option("--role", "-r", help="Whose: the subject of its token, or its certificate's name.")
]
Roles = Annotated[list[str] | None, typer.Option("--role", "-r", help="Repeatable; none leaves none.")]


@app.command(name="list")
def list_(
    target: Target = "public/default",
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show what was granted on a namespace and its topics, or what counts for one topic."""
    _give(way_to_ask(data, admin, bootstrap_server).ask("permissions", target=target), json)


@app.command()
def grant(
    target: Target,
    role: Role,
    actions: Annotated[
        str, typer.Option("--actions", "-a", help="produce, consume, functions, sources, sinks, packages.")
    ],
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Grant a role exactly these actions on a namespace or a topic."""
    wanted = [action.strip() for action in actions.split(",") if action.strip()]
    way = way_to_ask(data, admin, bootstrap_server)
    _give(way.ask("grant", target=target, role=role, actions=wanted), json)


@app.command()
def revoke(
    target: Target,
    role: Role,
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Take from a role all that it was granted on exactly this namespace or topic."""
    _give(way_to_ask(data, admin, bootstrap_server).ask("revoke", target=target, role=role), json)


@app.command()
def subscription(
    namespace: Annotated[str, typer.Argument(metavar="TENANT/NAMESPACE")],
    name: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="A subscription, or a Kafka group.")],
    role: Roles = None,
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Have a subscription be for these roles alone; without roles, for all that may consume."""
    way = way_to_ask(data, admin, bootstrap_server)
    _give(way.ask("restrict", namespace=namespace, subscription=name, roles=role or []), json)


@app.command()
def admins(
    tenant: Annotated[str, typer.Argument(metavar="TENANT")],
    role: Roles = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Leave the tenant without admins.")] = False,
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Make these roles, and no others, the admins of a tenant: they may do everything in it."""
    if bool(role) == nobody:
        raise Invalid("who?", "Give --role, as often as needed, or --nobody.")
    way = way_to_ask(data, admin, bootstrap_server)
    now = cast(tuple[str, ...], way.ask("set-admins", tenant=tenant, roles=role or []))
    give(now, lambda roles: iter([f"admins of {tenant}: {', '.join(roles) or 'nobody'}"]), as_json=json)


def _give(said: object, as_json: bool) -> None:
    give(cast(GrantsOf, said), _shown, as_json=as_json)


def _shown(grants: GrantsOf) -> Iterator[RenderableType]:
    if not grants.in_force:
        yield "Nobody is refused anything: authorization.enabled is not set. Grants are kept all the same."
    if grants.roles:
        yield _table(grants.target, "role", "may", grants.roles)
    else:
        yield f"{grants.target}: nothing is granted"
    for topic, rows in grants.topics.items():
        yield _table(topic, "role", "may", rows)
    if grants.subscriptions:
        yield _table("Subscriptions for some roles alone", "subscription", "roles", grants.subscriptions)
    if grants.others:
        yield "Kafka's ACLs that are no grants (see kafka-acls):"
        yield from (f"  {each}" for each in grants.others)
    if grants.admins:
        yield f"Admins of the tenant, who may do everything: {', '.join(grants.admins)}"


def _table(title: str, first: str, second: str, rows: Rows) -> RenderableType:
    return table((first, second), [(name, ", ".join(found)) for name, found in rows.items()], title=title)
