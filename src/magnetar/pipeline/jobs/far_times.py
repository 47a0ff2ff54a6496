"""Times beyond the year 9999 in JSON's rows: what comes of milliseconds where Spark reads a number as seconds.

Such a row would be stored, and neither PyArrow nor pandas can show it then. Which columns hold times, and where in
records, lists and maps, the columns' DDL says; query functions may not ask Spark for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

_TOKENS = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|[<>(),:]")
_LAST_S = 253_402_300_799
"""The end of the year 9999, seconds since 1970."""


@dataclass(frozen=True)
class _Kind:
    """A type: its word, and the types within it, by their fields where it has some."""

    word: str
    inner: dict[str, _Kind] = field(default_factory=dict)

    @property
    def has_times(self) -> bool:
        return self.word.startswith("TIMESTAMP") or any(each.has_times for each in self.inner.values())


def has_far_time(f: Any, row: Column, ddl: str) -> Column | None:
    """Return whether a row of these columns has a time beyond the year 9999; None if they hold no times.

    ``f`` is ``pyspark.sql.functions``. Null counts as no. What is no DDL is for Spark to refuse, and holds no times.
    """
    try:
        kind = _Kind("STRUCT", _fields(iter(_TOKENS.findall(ddl))))
    except StopIteration:
        return None
    return f.coalesce(_is_far(f, row, kind), f.lit(False)) if kind.has_times else None


def _is_far(f: Any, value: Column, kind: _Kind) -> Column:
    if kind.word == "STRUCT":
        looks = [
            _is_far(f, value.getField(name), each) for name, each in kind.inner.items() if each.has_times
        ]
        return reduce(lambda one, other: one | other, (f.coalesce(each, f.lit(False)) for each in looks))
    if kind.word == "ARRAY":
        item = kind.inner["element"]
        return f.exists(value, lambda each: f.coalesce(_is_far(f, each, item), f.lit(False)))
    if kind.word == "MAP":
        item = kind.inner["value"]
        return f.exists(f.map_values(value), lambda each: f.coalesce(_is_far(f, each, item), f.lit(False)))
    return f.unix_seconds(value.cast("timestamp")) > f.lit(_LAST_S)


def _fields(tokens: Iterator[str]) -> dict[str, _Kind]:
    """Read fields up to the end of the tokens, or to the bracket that closes them."""
    found: dict[str, _Kind] = {}
    for token in tokens:
        name = token[1:-1].replace("``", "`") if token.startswith("`") else token
        word = next(tokens)
        found[name], after = _kind(next(tokens) if word == ":" else word, tokens)
        depth = 0
        while after is not None and (depth or after not in (",", ">")):  # NOT NULL, COMMENT, DEFAULT
            depth += (after == "(") - (after == ")")
            after = next(tokens, None)
        if after == ">":
            break
    return found


def _kind(word: str, tokens: Iterator[str]) -> tuple[_Kind, str | None]:
    """Read a type; return it, and the token behind it."""
    word, after = word.upper(), next(tokens, None)
    if after == "<" and word == "STRUCT":
        return _Kind(word, _fields(tokens)), next(tokens, None)
    if after == "<":
        inner: dict[str, _Kind] = {}
        closing: str | None = ","
        for name in ("element",) if word == "ARRAY" else ("key", "value"):
            if closing != ",":
                raise StopIteration
            inner[name], closing = _kind(next(tokens), tokens)
        return _Kind(word, inner), next(tokens, None)
    if after == "(":
        while after not in (")", None):
            after = next(tokens, None)
        after = next(tokens, None)
    return _Kind(word), after
