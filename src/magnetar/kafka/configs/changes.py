"""What the operations of IncrementalAlterConfigs make of a resource's own configurations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from magnetar.base.errors import InvalidConfig
from magnetar.base.values import Kind


class InvalidChange(InvalidConfig):
    """The request contradicts itself; Kafka calls that INVALID_REQUEST, not INVALID_CONFIG."""


class Op(IntEnum):
    """What to do with one configuration (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


MOST_CHANGES = 1000
"""Of one resource: more than there are names, and they are looked at at a stretch."""


class ConfigChange(NamedTuple):
    """One operation on one configuration."""

    name: str
    op: int
    value: str | None


class Known(NamedTuple):
    """What is known of a configuration: its kind, and its value in force."""

    kind: Kind
    value: str | None


def replaced(wanted: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return what AlterConfigs (full replacement) asks for; raise `InvalidChange`."""
    changes = [ConfigChange(name, Op.SET, value) for name, value in wanted]
    check(changes)
    return {change.name: change.value for change in changes if change.value is not None}


def changed(
    own: Mapping[str, str], changes: Iterable[ConfigChange], known: Callable[[str], Known]
) -> dict[str, str]:
    """Return a resource's own configurations after the changes; ``known`` raises `InvalidConfig` for unknown names."""
    changes = list(changes)
    check(changes)
    after = dict(own)
    for change in changes:
        if change.op == Op.DELETE:
            after.pop(change.name, None)
        elif change.op == Op.SET:
            after[change.name] = change.value or ""
        else:
            after[change.name] = _list_change(change, known(change.name))
    return after


def check_count(count: int) -> None:
    """Raise `InvalidChange` for more changes of one resource than are made at once."""
    if count > MOST_CHANGES:
        raise InvalidChange(f"At most {MOST_CHANGES} configurations are changed at once.")


def check(changes: list[ConfigChange]) -> None:
    """Raise `InvalidChange` for names that come twice, missing values and unknown operations."""
    if len({change.name for change in changes}) != len(changes):
        raise InvalidChange("Error due to duplicate config keys")
    for change in changes:
        if change.op not in Op.__members__.values():
            raise InvalidChange(f"Unknown operation {change.op} for {change.name}")
        if change.value is None and change.op != Op.DELETE:
            raise InvalidChange(f"Null value not supported for : {change.name}")


def _list_change(change: ConfigChange, known: Known) -> str:
    if known.kind is not Kind.LIST:
        raise InvalidConfig(f"Can't {Op(change.op).name} to key {change.name} because its type is not LIST.")
    items = _items(known.value or "")
    named = _items(change.value or "")
    if change.op == Op.APPEND:
        return ",".join(dict.fromkeys(items + named))
    return ",".join(item for item in items if item not in named)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
