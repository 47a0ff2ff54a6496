"""All that a broker was told: one frozen dataclass for each part. ``docs/configuration.md`` is made from them.

The core's parts are attributes; each handler brings its own, which it finds by their type:

    settings.topics.num_partitions
    settings.of(PulsarSettings).keep_alive_interval_ms

A field's own name is its Kafka name with dots as underscores, where Kafka has such a setting; names are free once, in
all parts together. Times are in ms and sizes in bytes unless the unit says otherwise. How files, environment and flags
become `Settings` is told in `magnetar.broker.setting_sources`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

from magnetar.broker import built_in
from magnetar.broker.connection_settings import ConnectionSettings
from magnetar.broker.errors import HandlerError, InvalidConfig
from magnetar.broker.metrics_settings import MetricsSettings
from magnetar.broker.naming_settings import NamingSettings
from magnetar.broker.node_settings import NodeSettings
from magnetar.broker.security_settings import SecuritySettings
from magnetar.broker.setting import Feed, SettingDef, definitions_of, plain
from magnetar.broker.topic_settings import TopicSettings
from magnetar.broker.values import Value

Part = TypeVar("Part")
_CORE = (NodeSettings, ConnectionSettings, NamingSettings, TopicSettings, SecuritySettings, MetricsSettings)


class Declared:
    """Which settings there are, in the order of the parts, and by which names they are known."""

    def __init__(self, parts: Iterable[type]) -> None:
        """Raise `HandlerError` where two parts call a setting the same."""
        self.parts = tuple(parts)
        self.definitions: dict[str, SettingDef] = {}
        """By field name."""
        self.part_of: dict[str, type] = {}
        self._by_name: dict[str, dict[str, tuple[SettingDef, Feed]]] = {}
        for part in self.parts:
            for name, each in definitions_of(part).items():
                if name in self.definitions:
                    raise HandlerError(
                        f"{part.__name__} and {self.part_of[name].__name__} both have a setting {each.name}"
                    )
                self.definitions[name], self.part_of[name] = each, part
                for feed in each.feeds:
                    self._by_name.setdefault(plain(feed.name), {})[name] = each, feed

    def find_all(self, name: str) -> list[tuple[SettingDef, Feed]]:
        """Return the settings that have this name, own or foreign, in any spelling, and which of their names that is.

        One of Pulsar's may stand for two: ``maxMessageSize`` bounds what Pulsar's producers send, and in KoP Kafka's.
        """
        return list(self._by_name.get(plain(name), {}).values())

    def find(self, name: str) -> tuple[SettingDef, Feed] | None:
        """Return the first of `find_all`, or None."""
        return next(iter(self.find_all(name)), None)


class Settings:
    """What the broker was told. It never changes: dynamic settings change by giving the broker a new object."""

    __slots__ = (
        "node",
        "connections",
        "names",
        "topics",
        "security",
        "metrics",
        "given",
        "declared",
        "_parts",
    )

    def __init__(self, *parts: object, given: frozenset[str] = frozenset()) -> None:
        """``parts`` stand in place of their types' defaults; those of other handlers than the built-in ones are added.

        ``given`` are the fields that a file, the environment or a flag gave; the others have their defaults.
        """
        self._parts = {part: part() for part in (*_CORE, *built_in.all_settings())}
        self._parts |= {type(part): part for part in parts}
        self.node = self.of(NodeSettings)
        self.connections = self.of(ConnectionSettings)
        self.names = self.of(NamingSettings)
        self.topics = self.of(TopicSettings)
        self.security = self.of(SecuritySettings)
        self.metrics = self.of(MetricsSettings)
        self.given = given
        self.declared = _declared(tuple(self._parts))

    def of(self, part: type[Part]) -> Part:
        """Return the part of this type; raise ``KeyError`` if no handler brought it."""
        return cast(Part, self._parts[part])

    def value(self, name: str) -> Value:
        """Return the value of a field, whichever part has it."""
        return cast(Value, getattr(self._parts[self.declared.part_of[name]], name))

    def with_parts(self, types: Iterable[type]) -> Settings:
        """Return settings that know these parts, too, with their defaults."""
        return Settings(*({each: each() for each in types} | self._parts).values(), given=self.given)

    def with_fields(self, values: Mapping[str, Value]) -> Settings:
        """Return a copy in which these fields have these values, and count as given."""
        of_parts: dict[type, dict[str, Value]] = {}
        for name, value in values.items():
            of_parts.setdefault(self.declared.part_of[name], {})[name] = value
        parts: dict[type, Any] = dict(self._parts)
        for part, changed in of_parts.items():
            parts[part] = replace(parts[part], **changed)
        return Settings(*parts.values(), given=self.given | values.keys())

    def with_values(self, texts: Mapping[str, str]) -> Settings:
        """Return a copy in which the named settings (own or Kafka names) have new values, or raise `InvalidConfig`."""
        values: dict[str, Value] = {}
        for name, text in texts.items():
            found = self.declared.find_all(name)
            if not found:
                raise InvalidConfig(f"Unknown setting: {name}")
            for definition, feed in found:
                if (converted := feed.convert(text)) is not None:
                    values[definition.field] = definition.parse(converted)
        return self.with_fields(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (tuple(self._parts.values()), self.given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._parts == other._parts and self.given == other.given

    def __hash__(self) -> int:
        return hash((tuple(self._parts.items()), self.given))


def _made(parts: tuple[object, ...], given: frozenset[str]) -> Settings:
    return Settings(*parts, given=given)


@cache
def _declared(parts: tuple[type, ...]) -> Declared:
    return Declared(parts)
