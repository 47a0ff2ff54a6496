"""``magnetar user``: who may log in to Kafka's listeners by SCRAM, in the running broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.errors import Invalid
from magnetar.admin.users import User
from magnetar.admin.whereabouts import way_to_ask
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Admin, Bootstrap, Data, Json
from magnetar.cli.output import give, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    help="Show and change who may log in by SCRAM, as kafka-configs --entity-type users does.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="USER", help="The name, which is also the role.")]


@app.command(name="list")
def list_(
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show all users, and how much work their passwords are."""
    _give(way_to_ask(data, admin, bootstrap_server).ask("users"), json)


@app.command(name="set")
def set_(
    user: Name,
    password_file: Annotated[
        Path | None,
        typer.Option(
            help="File that holds the password, else it is read from the terminal or standard input."
        ),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism", "-m", help="SCRAM-SHA-256, SCRAM-SHA-512; repeatable. Else those enabled."
        ),
    ] = None,
    iterations: Annotated[int, typer.Option(help="Of the hash, 4096 to 16384.")] = 4096,
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Give a user a password, who is made if he was not there. With --data, of a broker that knows nobody yet, too."""
    password = _password(user, password_file)
    way = way_to_ask(data, admin, bootstrap_server)
    said = way.ask(
        "set-user", user=user, password=password, mechanisms=mechanism or [], iterations=iterations
    )
    _give(said, json)


@app.command()
def delete(
    user: Name,
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Forget a user's passwords; who is connected stays so until his session ends."""
    _give(way_to_ask(data, admin, bootstrap_server).ask("delete-user", user=user), json)


def _password(user: str, file: Path | None) -> str:
    if file is None and sys.stdin.isatty():
        return getpass(f"Password of {user}: ")
    try:
        text = sys.stdin.read() if file is None else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the password cannot be read: {error}") from None
    return text.removesuffix("\n").removesuffix("\r")


def _give(said: object, as_json: bool) -> None:
    give(cast(tuple[User, ...], said), _shown, as_json=as_json)


def _shown(users: tuple[User, ...]) -> Iterator[RenderableType]:
    if not users:
        yield "There are no users."
        return
    rows = [
        (user.name, mechanism, str(count)) for user in users for mechanism, count in user.mechanisms.items()
    ]
    yield table(("user", "mechanism", "iterations"), rows)
    if not all(user.enabled for user in users):
        yield "Some of them cannot log in: sasl.enabled.mechanisms does not name their mechanism."
