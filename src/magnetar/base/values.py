"""Values as text and as Python's: how every setting and topic configuration is read, checked and shown.

The kinds, their ranges and the words of the errors are Kafka's, since its tools print them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from magnetar.base.errors import InvalidConfig

MAX_LONG = (1 << 63) - 1
MAX_INT = (1 << 31) - 1

Value = bool | int | float | str | tuple[str, ...] | None


class Kind(IntEnum):
    """The type of a value; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BOUNDS = {
    Kind.INT: (-(1 << 31), MAX_INT),
    Kind.SHORT: (-(1 << 15), (1 << 15) - 1),
    Kind.LONG: (-1 - MAX_LONG, MAX_LONG),
}
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a value must satisfy, or each item of a list, and the words that say so."""

    demand: str
    holds: Callable[[Value], bool]
    missed: Callable[[Value], str] | None = None
    """What is said of a value that does not, where that depends on the value; the demand without it."""

    def refusal(self, value: Value, text: str | None) -> tuple[str | None, str] | None:
        """Return what of a value, written as ``text``, may not be, an item of a list or all of it, and why."""
        parts = zip(value, value, strict=True) if isinstance(value, tuple) else [(value, text)]
        for part, shown in parts:
            if not self.holds(part):
                return shown, self.demand if self.missed is None or part is None else self.missed(part)
        return None


def at_least(low: float) -> Rule:
    """Numbers from ``low`` on."""
    return Rule(
        f"Value must be at least {low}", lambda value: isinstance(value, int | float) and value >= low
    )


def between(low: float, high: float) -> Rule:
    """Numbers from ``low`` to ``high``, both included; of others only the end that they missed is told, as by Kafka."""
    return Rule(
        f"Value must be between {low} and {high}",
        lambda value: isinstance(value, int | float) and low <= value <= high,
        lambda value: (
            at_least(low).demand
            if isinstance(value, int | float) and value < low
            else f"Value must be no more than {high}"
        ),
    )


def one_of(*names: str) -> Rule:
    """One of some words; a list of them."""
    return Rule("String must be one of: " + ", ".join(names), lambda value: value in names)


def parse(name: str, kind: Kind, text: str | None, rule: Rule | None = None) -> Value:
    """Return the value that ``text`` stands for; `InvalidConfig` names setting, value and what is allowed."""
    value = None if text is None else _read(name, kind, text.strip() if kind is not Kind.PASSWORD else text)
    if rule is not None and (refusal := rule.refusal(value, text)) is not None:
        raise InvalidConfig(f"Invalid value {refusal[0]} for configuration {name}: {refusal[1]}")
    return value


def render(value: Value) -> str | None:
    """Write a value as Kafka shows it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _read(name: str, kind: Kind, text: str) -> Value:
    if kind is Kind.BOOLEAN:
        if text.lower() not in _BOOLEANS:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {name}: Expected value to be either true or false"
            )
        return _BOOLEANS[text.lower()]
    if kind in _BOUNDS:
        return _read_integer(name, kind, text)
    if kind is Kind.DOUBLE:
        return _read_double(name, text)
    if kind is Kind.LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    return text


def _read_integer(name: str, kind: Kind, text: str) -> int:
    low, high = _BOUNDS[kind]
    # int() alone would also take "1_000" and digits of other scripts.
    if text.isascii() and text.lstrip("+-").isdigit() and len(text) < 24:
        try:
            number = int(text)
        except ValueError:
            number = high + 1
        if low <= number <= high:
            return number
    raise InvalidConfig(f"Invalid value {text} for configuration {name}: Not a number of type {kind.name}")


def _read_double(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidConfig(
            f"Invalid value {text} for configuration {name}: Not a number of type DOUBLE"
        ) from None
