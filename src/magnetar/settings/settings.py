"""All that a broker was told: one frozen dataclass for each part. ``docs/configuration.md`` is made from them.

The core's parts are attributes; each handler brings its own, which it finds by their type:

    settings.topics.num_partitions
    settings.of(PulsarSettings).keep_alive_interval_ms

A field's own name is its Kafka name with dots as underscores, where Kafka has such a setting; names are free once, in
all parts together. Times are in ms and sizes in bytes unless the unit says otherwise. How files, environment and flags
become `Settings` is told in `magnetar.node.setting_sources`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar, cast

from magnetar.base.errors import HandlerError, InvalidConfig
from magnetar.base.setting import Feed, SettingDef, definitions_of, plain
from magnetar.base.values import Value
from magnetar.settings import built_in
from magnetar.settings.connection import ConnectionSettings
from magnetar.settings.metrics import MetricsSettings
from magnetar.settings.naming import NamingSettings
from magnetar.settings.node import NodeSettings
from magnetar.settings.security import SecuritySettings
from magnetar.settings.topic import TopicSettings

Part = TypeVar("Part")
ByListener = Mapping[str, Mapping[str, Value]]
"""What listeners have of their own: by the listener's folded name, the fields' values."""
_LISTENER = plain("listener.name.")
_CORE = (NodeSettings, ConnectionSettings, NamingSettings, TopicSettings, SecuritySettings, MetricsSettings)


@dataclass(frozen=True, slots=True)
class SettingOrigins:
    """Sources of values, and names that mean nothing: for operators, and no part of the settings' value."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """By field; by ``LISTENER/FIELD`` for what a listener has of its own. A field that is not there has its default."""
    ignored: tuple[str, ...] = ()


_NOTHING = SettingOrigins()


class Declared:
    """Which settings there are, in the order of the parts, and by which names they are known."""

    def __init__(self, parts: Iterable[type]) -> None:
        """Raise `HandlerError` where two parts call a setting the same."""
        self.parts = tuple(parts)
        self.definitions: dict[str, SettingDef] = {}
        """By field name."""
        self.part_of: dict[str, type] = {}
        self._by_name: dict[str, dict[str, tuple[SettingDef, Feed]]] = {}
        self._by_listener: dict[str, SettingDef] = {}
        for part in self.parts:
            for name, each in definitions_of(part).items():
                if name in self.definitions:
                    raise HandlerError(
                        f"{part.__name__} and {self.part_of[name].__name__} both have a setting {each.name}"
                    )
                self.definitions[name], self.part_of[name] = each, part
                if each.by_listener:
                    self._by_listener |= {plain(feed.name): each for feed in (Feed(each.name), *each.kafka)}
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

    def of_a_listener(self, name: str) -> tuple[str, SettingDef] | None:
        """Return which listener, folded, ``listener.name.NAME.SETTING`` is about, and which of its settings; or None.

        Listeners' names may have dots, and in the environment all dots are underscores: the end of the name counts.
        """
        folded = plain(name)
        if not folded.startswith(_LISTENER):
            return None
        found = [each for each in self._by_listener if folded.endswith(each)]
        longest = max(found, key=len, default="")
        listener = folded.removeprefix(_LISTENER).removesuffix(longest)
        return (listener, self._by_listener[longest]) if longest and listener else None


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
        "by_listener",
        "told",
        "_parts",
        "_at",
    )

    def __init__(
        self,
        *parts: object,
        given: frozenset[str] = frozenset(),
        by_listener: ByListener | None = None,
        told: SettingOrigins = _NOTHING,
    ) -> None:
        """``parts`` stand in place of their types' defaults; those of other handlers than the built-in ones are added.

        ``given`` are the fields that a file, the environment or a flag gave; the others have their defaults.
        ``by_listener`` are the values that single listeners have instead.
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
        self.by_listener: ByListener = by_listener or {}
        self.told = told
        self._at: dict[str, Settings] = {}

    def of(self, part: type[Part]) -> Part:
        """Return the part of this type; raise ``KeyError`` if no handler brought it."""
        return cast(Part, self._parts[part])

    def at(self, listener: str) -> Settings:
        """Return the settings as one of Kafka's listeners has them."""
        own = self.by_listener.get(plain(listener))
        if not own:
            return self
        found = self._at.get(listener)
        if found is None:
            found = self._at[listener] = self.with_fields(own)
        return found

    @property
    def security_by_listener(self) -> dict[str, SecuritySettings]:
        """Who may connect where, for listeners that have anything of their own; by their folded names."""
        return {name: self.at(name).security for name in self.by_listener}

    def value(self, name: str) -> Value:
        """Return the value of a field, whichever part has it."""
        return cast(Value, getattr(self._parts[self.declared.part_of[name]], name))

    def with_parts(self, types: Iterable[type]) -> Settings:
        """Return settings that know these parts, too, with their defaults."""
        parts = ({each: each() for each in types} | self._parts).values()
        return Settings(*parts, given=self.given, by_listener=self.by_listener, told=self.told)

    def with_listeners(self, values: ByListener) -> Settings:
        """Return a copy in which listeners have these values of their own, beside those that they have."""
        known = self.by_listener
        merged = {name: {**known.get(name, {}), **values.get(name, {})} for name in {**known, **values}}
        return Settings(*self._parts.values(), given=self.given, by_listener=merged, told=self.told)

    def with_told(self, told: SettingOrigins) -> Settings:
        """Return a copy that knows where its values come from."""
        return Settings(*self._parts.values(), given=self.given, by_listener=self.by_listener, told=told)

    def with_fields(self, values: Mapping[str, Value]) -> Settings:
        """Return a copy in which these fields have these values, and count as given."""
        of_parts: dict[type, dict[str, Value]] = {}
        for name, value in values.items():
            of_parts.setdefault(self.declared.part_of[name], {})[name] = value
        parts: dict[type, Any] = dict(self._parts)
        for part, changed in of_parts.items():
            parts[part] = replace(parts[part], **changed)
        given = self.given | values.keys()
        return Settings(*parts.values(), given=given, by_listener=self.by_listener, told=self.told)

    def with_values(self, texts: Mapping[str, str]) -> Settings:
        """Return a copy in which the named settings (own or Kafka names) have new values, or raise `InvalidConfig`."""
        values: dict[str, Value] = {}
        of_listeners: dict[str, dict[str, Value]] = {}
        for name, text in texts.items():
            if (own := self.declared.of_a_listener(name)) is not None:
                of_listeners.setdefault(own[0], {})[own[1].field] = own[1].parse(text)
                continue
            found = self.declared.find_all(name)
            if not found:
                raise InvalidConfig(f"Unknown setting: {name}")
            for definition, feed in found:
                if (converted := feed.convert(text)) is not None:
                    values[definition.field] = definition.parse(converted)
        return self.with_fields(values).with_listeners(of_listeners)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (tuple(self._parts.values()), self.given, self.by_listener, self.told)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings):
            return False
        theirs = (other._parts, other.given, other.by_listener)
        return (self._parts, self.given, self.by_listener) == theirs

    def __hash__(self) -> int:
        return hash((tuple(self._parts.items()), self.given))


def _made(
    parts: tuple[object, ...], given: frozenset[str], by_listener: ByListener, told: SettingOrigins
) -> Settings:
    return Settings(*parts, given=given, by_listener=by_listener, told=told)


@cache
def _declared(parts: tuple[type, ...]) -> Declared:
    return Declared(parts)
