"""One setting: its type, limits and unit, a sentence about it, and the names by which files of others give it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar, cast

from magnetar.base.values import Kind, Rule, Value, parse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Feed:
    """A foreign name of a setting, and how its text becomes ours; a conversion to None means: as if not given."""

    name: str
    convert: Callable[[str], str | None] = str


@dataclass(frozen=True, slots=True)
class SettingDef:
    """What is known of one field of a part of the settings."""

    field: str
    kind: Kind
    default: Value
    unit: str
    doc: str
    rule: Rule | None
    dynamic: bool
    kafka: tuple[Feed, ...]
    pulsar: tuple[Feed, ...]
    by_listener: bool = False
    """Whether ``listener.name.NAME.SETTING`` gives one of Kafka's listeners a value of its own."""

    @property
    def name(self) -> str:
        """The setting's own name, as in ``--set num.partitions=4``."""
        return self.field.replace("_", ".")

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """All names that may give it, the strongest first."""
        return (Feed(self.name), *self.kafka, *self.pulsar)

    @property
    def is_without_effect(self) -> bool:
        """Whether it is taken, and shown, for those who have it in their files, and nothing comes of it."""
        return self.doc.startswith("Without effect")

    def parse(self, text: str | None) -> Value:
        """Return the value that ``text`` stands for, or raise `InvalidConfig`."""
        return parse(self.name, self.kind, text, self.rule)


def setting(
    default: T,
    kind: Kind,
    doc: str,
    *,
    unit: str = "",
    rule: Rule | None = None,
    dynamic: bool = False,
    kafka: tuple[str | Feed, ...] = (),
    pulsar: tuple[str | Feed, ...] = (),
    by_listener: bool = False,
) -> T:
    """Declare a field of a part of the settings; ``dynamic`` ones may change while the broker runs."""
    names = _feeds(kafka), _feeds(pulsar)
    made = SettingDef("", kind, cast(Value, default), unit, doc, rule, dynamic, *names, by_listener)
    return field(default=default, metadata={"setting": made})


class HandlerSettings:
    """What a handler's own settings derive from: a frozen dataclass with slots, each field made by `setting`."""

    __slots__ = ()

    @property
    def asks_to_serve(self) -> bool:
        """Whether they ask for the handler where ``messaging.protocols`` does not name it; only of those built in."""
        return False


def definitions_of(part: type) -> dict[str, SettingDef]:
    """Return the settings that a part declares, by field name."""
    declared = ((each.name, each.metadata.get("setting")) for each in fields(part))
    return {name: replace(made, field=name) for name, made in declared if made is not None}


def plain(name: str) -> str:
    """Fold a name, so that ``MAGNETAR_NUM_PARTITIONS`` and ``num.partitions`` meet."""
    return re.sub(r"[._-]", "", name).lower()


def times(factor: int) -> Callable[[str], str | None]:
    """Convert a whole number to a finer unit; what is no number passes, so that the error shows what was given.

    Negative numbers mean "no bound" everywhere and stay what they are.
    """

    def convert(text: str) -> str:
        number = text.strip()
        return str(int(number) * factor) if number.isascii() and number.isdigit() else text

    return convert


def times_unless_zero(factor: int) -> Callable[[str], str | None]:
    """The same, but 0 means: as if not given."""
    return lambda text: None if text.strip() == "0" else times(factor)(text)


def _feeds(names: tuple[str | Feed, ...]) -> tuple[Feed, ...]:
    return tuple(name if isinstance(name, Feed) else Feed(name) for name in names)
