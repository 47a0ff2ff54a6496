"""Paths into JSON: the part of RFC 9535 that takes time in proportion to what it looks at, and a comparison.

    $.customer.id = 7        $.items[0].sku        $['a name'][*] ~ "part"        customer.id != null

Names, indexes, and ``*`` for all of a list or an object. There are no ``..`` and no filters: each value is looked at
once, so that a path of any client's is bounded by its record. Comparisons are ``=``, ``!=``, ``<``, ``<=``, ``>``,
``>=``, and ``~`` (has this text); what stands behind them is JSON, or else a text. Without one, the path must lead
somewhere.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MOST_STEPS = 32
_MOST_LETTERS = 1000
_STEP = re.compile(
    r"""\.?(?:
    (?P<name>(?<=\.)[\w-]+)
    |(?P<all>(?<=\.)\*|\[\*\])
    |\[(?P<index>-?\d{1,9})\]
    |\['(?P<single>[^'\\]*)'\]
    |\["(?P<double>[^"\\]*)"\]
    )""",
    re.VERBOSE,
)
_COMPARED = re.compile(r"\s*(?P<by>!=|<=|>=|=|<|>|~)\s*(?P<with>.*?)\s*", re.DOTALL)
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER = re.compile(r"[-+.0-9eE]+")
_LETTERS = re.compile(r"[A-Za-z0-9]+")

Step = str | int | None
"""A name, an index, or None for all."""


class NoJsonPath(ValueError):
    """A path that cannot be read; the text says from where on."""


class JsonPath(NamedTuple):
    """A path, and what its end is compared with."""

    steps: tuple[Step, ...]
    by: str = ""
    wanted: Any = None

    def is_in(self, value: Any) -> bool:
        """Return True if the path leads to something in a parsed value, and the comparison holds for any of it."""
        return any(self._holds(found) for found in self._ends(value))

    @property
    def words(self) -> tuple[bytes, ...]:
        """Words that stand in each JSON text that matches, unless it writes letters as ``\\u0041``."""
        names = [each for each in self.steps if isinstance(each, str)]
        if self.by in ("=", "~") and isinstance(self.wanted, str) and not _NUMBER.fullmatch(self.wanted):
            names.append(self.wanted)
        found = (max(_LETTERS.findall(each), key=len, default="") for each in names)
        return tuple(each.encode() for each in found if each)

    def _ends(self, value: Any) -> Iterator[Any]:
        reached = [value]
        for step in self.steps:
            reached = [more for each in reached for more in _next(each, step)]
        return iter(reached)

    def _holds(self, found: Any) -> bool:
        if not self.by:
            return True
        wanted = self.wanted
        if self.by in ("=", "!="):
            return _is_same(found, wanted) is (self.by == "=")
        if self.by == "~":
            return str(wanted) in (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))
        if _is_number(wanted) and isinstance(found, str):  # 64-bit numbers of Protobuf are texts in JSON
            try:
                found = float(found)
            except ValueError:
                return False
        if isinstance(found, str) is not isinstance(wanted, str) or not (
            isinstance(wanted, str) or (_is_number(wanted) and _is_number(found))
        ):
            return False
        return bool(_ORDERS[self.by](found, wanted))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(found: Any, wanted: Any) -> bool:
    """Compare two values; a number is also the text of it, as which Protobuf's JSON has those of 64 bits."""
    if isinstance(found, bool) is not isinstance(wanted, bool):
        return False
    if isinstance(found, str) and _is_number(wanted):
        return found == str(wanted)
    if isinstance(wanted, str) and _is_number(found):
        return bool(str(found) == wanted)
    return bool(found == wanted)


def _next(value: Any, step: Step) -> list[Any]:
    if isinstance(value, dict):
        if step is None:
            return list(value.values())
        return [value[step]] if isinstance(step, str) and step in value else []
    if isinstance(value, list):
        if step is None:
            return value
        return [value[step]] if isinstance(step, int) and -len(value) <= step < len(value) else []
    return []


def path_of(text: str) -> JsonPath:
    """Return a path that was written down; raise ``NoJsonPath``."""
    given = text.strip()
    if len(given) > _MOST_LETTERS:
        raise NoJsonPath(f"a path has at most {_MOST_LETTERS} letters")
    if given.startswith("$"):
        given = given[1:]
    elif not given.startswith((".", "[")):
        given = f".{given}"
    steps: list[Step] = []
    at = 0
    while at < len(given) and (found := _STEP.match(given, at)) is not None:
        if len(steps) == MOST_STEPS:
            raise NoJsonPath(f"a path has at most {MOST_STEPS} steps")
        steps.append(_step(found))
        at = found.end()
    rest = given[at:]
    if not rest.strip():
        return JsonPath(tuple(steps))
    compared = _COMPARED.fullmatch(rest)
    if compared is None:
        raise NoJsonPath(f"not understood from here on: {rest[:60]!r}")
    return JsonPath(tuple(steps), compared["by"], _wanted(compared["by"], compared["with"]))


def _step(found: re.Match[str]) -> Step:
    if found["all"]:
        return None
    if found["index"]:
        return int(found["index"])
    return next(each for each in (found["name"], found["single"], found["double"]) if each is not None)


def _wanted(by: str, text: str) -> Any:
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if by == "~" and not isinstance(wanted, str) else wanted
