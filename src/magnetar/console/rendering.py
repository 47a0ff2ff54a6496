"""Facts as HTML: one environment for all pages, which escapes everything, and shows no character that deceives.

What clients chose (names, ids, keys, values, headers) may be anything. Jinja escapes what would be markup; before that
each value is made printable: a letter that turns the order of others around, or that a terminal would obey once
the page is copied there, is shown as ``\\u202e``. Lines and tabs within records stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from magnetar.base.printable import printable_lines

_HERE = Path(__file__).parent
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
NONE = "–"
"""What is shown where nothing is known."""


def environment() -> Environment:
    """Return what renders all templates; templates are compiled when they are first used."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bytes": as_bytes,
        "count": as_count,
        "rate": as_rate,
        "time": as_time,
        "duration": as_duration,
    }
    made.globals |= {"url": url}
    return made


def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the stylesheet and the script, by name, with their media types."""
    types = {".css": "text/css", ".js": "text/javascript"}
    return {
        path.name: (path.read_bytes(), types[path.suffix])
        for path in (_HERE / "static").iterdir()
        if path.suffix in types
    }


def url(page: str, query: Mapping[str, Any] | None = None, /, **more: Any) -> str:
    """Return the address of a page with its state; what is None or empty is left out."""
    state = {name: value for name, value in {**(query or {}), **more}.items() if value not in (None, "")}
    said = urlencode(state)
    return f"/console/{page}{'?' if said else ''}{said}"


def _shown(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return NONE if value is None else printable_lines(str(value))


def as_bytes(number: float | None) -> str:
    """Return a size for people: ``1.4 MB``."""
    if number is None:
        return NONE
    size, unit = float(number), 0
    while abs(size) >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"


def as_count(number: float | None) -> str:
    """Return a number with commas."""
    return NONE if number is None else f"{number:,.0f}"


def as_rate(number: float | None) -> str:
    """Return a number per second, small ones with a digit behind the point."""
    if number is None:
        return NONE
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.1f}"


def as_time(ms: int | None) -> str:
    """Return a time in ms since 1970 as ISO 8601 writes it, in UTC."""
    if ms is None or ms <= 0:
        return NONE
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(ms)  # clients may say any time


def as_duration(seconds: float | None) -> str:
    """Return a time that passed, in the two largest units: ``3 h 12 min``."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{max(seconds, 0):.1f} s"
    whole = int(seconds)
    for name, size, smaller, smaller_size in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller_size} {smaller}"
    return f"{whole // 60} min {whole % 60} s"
