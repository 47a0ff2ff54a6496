"""What every text of a bundle goes through: without secrets, and without names unless they are wanted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from magnetar.auth.redaction import CUT, redacted, spellings, without
from magnetar.base.printable import printable_json, printable_lines
from magnetar.doctor.bundle_names import HiddenNames

_MOST_OF_A_LINE = 4000
_AT_ONCE = 40 << 10
"""Bytes of one question: the socket takes no longer lines than 64 KB."""


class Cleaning:
    """Takes out what does not belong into a bundle."""

    def __init__(
        self, secrets: Iterable[str], ask_broker: Callable[[list[str]], Iterable[str]] | None
    ) -> None:
        """``secrets`` are those that this process knows; ``ask_broker`` returns lines without the broker's own."""
        self._secrets = spellings(secrets)
        self._ask_broker = ask_broker
        self.names: HiddenNames | None = None
        """None for names as they are."""

    def lines(self, lines: Iterable[str], *, figures: bool = False) -> list[str]:
        """Return lines of a text; secrets of several lines leave fewer of them."""
        found = [_whole_words(each) for each in lines]
        found = printable_lines(redacted("\n".join(self._unknown(found)))).split("\n")
        if self.names is None:
            return found
        if figures:
            return [self.names.figures(each) for each in found]
        return self.names.text("\n".join(found)).split("\n")

    def text(self, value: object) -> str:
        """Return JSON of a value: of its mappings the keys are texts, too, and fields' names are none."""
        strings = list(dict.fromkeys(_strings(value)))
        clean = [redacted(each) for each in self._unknown([_whole_words(each) for each in strings])]
        if self.names is not None:
            clean = [self.names.text(each) for each in clean]
        known = dict(zip(strings, clean, strict=True))
        return printable_json(json.dumps(_replaced(value, known), ensure_ascii=False, indent=2))

    def _unknown(self, lines: list[str]) -> list[str]:
        """Return as many lines without secrets that are known as such."""
        found = [without(each, self._secrets) for each in lines]
        if self._ask_broker is None:
            return found
        answered: list[str] = []
        for some in _portions(found):
            answer = list(self._ask_broker(some))
            if len(answer) != len(some):
                raise ValueError("the broker returned other lines than it was asked about")
            answered += answer
        return answered


def _whole_words(line: str) -> str:
    """Return a line that is not too long; one that was cut loses its last word, which may be part of a secret."""
    if len(line) < CUT or (len(line) <= _MOST_OF_A_LINE and len(line) != CUT):
        return line
    return line[:_MOST_OF_A_LINE].rpartition(" ")[0] + " ..."


def _portions(lines: list[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for each in lines:
        nbytes = len(json.dumps(each, ensure_ascii=False).encode("utf-8", "replace")) + 1
        if some and size + nbytes > _AT_ONCE:
            yield some
            some, size = [], 0
        some.append(each)
        size += nbytes
    if some:
        yield some


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield str(value)
    elif isinstance(value, dict):
        yield from map(str, value)
        yield from _strings(list(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _strings(each)
    elif is_dataclass(value):
        for own in fields(value):
            yield from _strings(getattr(value, own.name))


def _replaced(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, str):
        return known[str(value)]
    if isinstance(value, dict):
        return {known[str(key)]: _replaced(each, known) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_replaced(each, known) for each in value]
    if is_dataclass(value):
        return {own.name: _replaced(getattr(value, own.name), known) for own in fields(value)}
    return value
