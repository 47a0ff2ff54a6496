"""``magnetar health``: one line, and an exit status for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import typer

from magnetar.admin.health import Health, Status
from magnetar.admin.whereabouts import way_to_ask
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Admin, Bootstrap, Data, Json
from magnetar.cli.output import give

if TYPE_CHECKING:
    from rich.console import RenderableType

_EXITS = {Status.OK: 0, Status.DEGRADED: 3, Status.STARTING: 1, Status.FAILED: 1}
"""2 is a command that was not understood."""


def health(
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Show in one line whether a broker serves, and what is wrong.

    Ends with 0 if all is well, 3 if the broker serves but is degraded, and 1 if it does not serve or cannot be reached.
    """
    found = cast(Health, way_to_ask(data, admin, bootstrap_server).ask("health"))
    give(found, _shown, as_json=json)
    raise typer.Exit(_EXITS[found.status])


def _shown(value: Health) -> Iterator[RenderableType]:
    yield f"{value.status}: {'; '.join(value.reasons)}" if value.reasons else str(value.status)
