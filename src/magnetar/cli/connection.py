"""One set of options for all commands that ask a broker: which one, by whom, and with what TLS.

An option goes before the environment's variable of its name, that before the context, and the context before the
default. Login and TLS are each taken from the first of these that says anything about it, as a whole.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from magnetar.admin import credentials
from magnetar.admin.client_options import client_settings
from magnetar.admin.contexts import CommandContext, find_context

PANEL = "Connection"
OPTIONS: dict[str, tuple[Any, str, str]] = {
    "user": (str, "NAME", "User to log in as."),
    "password": (str, "TEXT", "The password; other users of the machine may see it here, so prefer a file."),
    "password_file": (Path, "FILE", "File with the password; - is standard input."),
    "token": (str, "TEXT", "Token to log in with; --user is then the tenant, public by default."),
    "token_file": (Path, "FILE", "File with the token; - is standard input."),
    "sasl_mechanism": (str, "NAME", "PLAIN (default), SCRAM-SHA-256 or SCRAM-SHA-512."),
    "tls_ca": (str, "FILE", "PEM file of those to trust; implies TLS. 'system' trusts what the system does."),
    "tls_cert": (str, "FILE", "PEM file of the certificate to show; implies TLS."),
    "tls_key": (str, "FILE", "PEM file of its key."),
    "tls_any_name": (str, "yes|no", "yes accepts a certificate of any name; implies TLS."),
}
"""Options by name: type, metavar, help. The environment's ``MAGNETAR_USER`` and so on mean the same."""


def _from_context(context: typer.Context, value: str | None) -> str | None:
    """Apply the context where neither an option nor the environment says anything."""
    if context.resilient_parsing:
        return value
    found = find_context(value)
    if found is not None:
        context.default_map = _defaults(found)
        credentials.use(context=found.settings)
    return value


def _defaults(found: CommandContext) -> dict[str, str]:
    named = {
        "bootstrap_server": found.bootstrap_servers,
        "admin": found.http_url,
        "schema_registry": found.schema_registry,
    }
    return {name: text for name, text in named.items() if text}


def connects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options of a connection, if it has one; it gets none of them itself."""
    signature = inspect.signature(command, eval_str=True)
    if "bootstrap_server" not in signature.parameters or "context_name" in signature.parameters:
        return command
    own = [name for name in OPTIONS if name not in signature.parameters]

    @functools.wraps(command)
    def connected(**given: Any) -> Any:
        given.pop("context_name")
        credentials.use(options=client_settings({name: given.pop(name) for name in own}))
        return command(**given)

    added = [_parameter(name) for name in own]
    shared = inspect.Parameter(
        "context_name",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            str | None,
            typer.Option(
                "--context",
                metavar="NAME",
                help="Cluster and login, as 'magnetar context' has them. [env MAGNETAR_CONTEXT]",
                callback=_from_context,
                is_eager=True,
                rich_help_panel=PANEL,
            ),
        ],
    )
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    connected.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*keyword, shared, *added]
    )
    connected.__annotations__ = {
        **command.__annotations__,
        **{each.name: each.annotation for each in (shared, *added)},
    }
    return connected


def _parameter(name: str) -> inspect.Parameter:
    kind, metavar, told = OPTIONS[name]
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        metavar=metavar,
        help=f"{told} [env MAGNETAR_{name.upper()}]",
        rich_help_panel=PANEL,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
