"""A command's value as JSON for programs or as tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from magnetar.admin.plain import plain
from magnetar.base.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


def give(value: T, text: Callable[[T], Iterable[RenderableType]], *, as_json: bool) -> None:
    """Print a value; ``text`` gives what people see of it."""
    if as_json:
        print(printable_json(json.dumps(plain(value), ensure_ascii=False, indent=2)))
        return
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 1000  # programs that read tables want no line breaks in them
    console = Console(markup=False, highlight=False, width=wide, soft_wrap=False)
    for part in text(value):
        console.print(printable_lines(part) if isinstance(part, str) else part)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None
) -> RenderableType:
    """Return a table; columns whose names begin with ``#`` hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = None if title is None else printable(title)
    made = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        numeric = column.startswith("#")
        made.add_column(
            printable(column.lstrip("#")),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*map(shown, row))
    return made


def pairs(rows: Iterable[tuple[str, object]]) -> RenderableType:
    """Return names and values side by side."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(printable(name), shown(value))
    return made


def shown(value: object) -> str:
    """Return a cell's text: ``-`` for nothing, yes and no for truth; none of it moves a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable_lines(str(value))


def size(number: int) -> str:
    """Return bytes as people say them."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def moment(ms: int) -> str:
    """Return a time in ms since 1970 as UTC."""
    if ms < 0:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:23] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"  # producers may write any number
