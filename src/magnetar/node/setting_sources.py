"""Where settings come from: defaults, a file, the environment of images, ``MAGNETAR_*`` there, ``--set``.

The file may be Kafka's server.properties, Pulsar's or KoP's standalone.conf or broker.conf, or use the settings' own
names; what it is shows in its names alone. What has no meaning here is not an error in a file that was written
for another broker: it is collected in `LoadedSettings.ignored`, to be named in one warning. A wrong value always is
one.

Which settings there are depends on the handlers that ``messaging.protocols`` names, and on what opens ``metadata.url``
and ``storage.url``, so the sources are merged twice: with the settings of what is built in, and where others are named,
once more with theirs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from magnetar.base.errors import InvalidConfig
from magnetar.base.printable import printable
from magnetar.base.setting import SettingDef, plain
from magnetar.base.values import Value
from magnetar.node.image_environment import image_settings
from magnetar.settings.built_in import BUILT_IN, METADATA_STORES, STORAGE_ENGINES, scheme_of
from magnetar.settings.cluster import ClusterSettings
from magnetar.settings.load import LoadSettings
from magnetar.settings.settings import Declared, SettingOrigins, Settings

ENVIRONMENT_PREFIX = "MAGNETAR_"
_NOT_THE_BROKERS = {
    "MAGNETAR_BOOTSTRAP_SERVER",
    "MAGNETAR_COMMAND_CONFIG",
    "MAGNETAR_ADMIN",
    "MAGNETAR_OBJECT_CACHE",
    "MAGNETAR_SCHEMA_REGISTRY",
    "MAGNETAR_CONTEXT",
    "MAGNETAR_USER",
    "MAGNETAR_PASSWORD",
    "MAGNETAR_PASSWORD_FILE",
    "MAGNETAR_TOKEN",
    "MAGNETAR_TOKEN_FILE",
    "MAGNETAR_SASL_MECHANISM",
    "MAGNETAR_TLS_CA",
    "MAGNETAR_TLS_CERT",
    "MAGNETAR_TLS_KEY",
    "MAGNETAR_TLS_ANY_NAME",
}  # tell the command line whom to ask, how; Spark's source where to keep what it brings


_OF_ALL_LISTENERS = re.compile(
    r"listener\.name\.[^.]+\.(?:oauthbearer\.)?(sasl\.oauthbearer\..+)", re.IGNORECASE
)
"""What Kafka says of each listener, and is the same for all here."""
_USERS = "plain_sasl_jaas_config"
_PAIR = re.compile(r"((?:[^=:\\]|\\.)*)[=:](.*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_MEANT = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and the names that were given but mean nothing here."""

    settings: Settings
    ignored: tuple[str, ...] = ()

    def warning(self) -> str | None:
        """One line that names all that was ignored, or None."""
        if not self.ignored:
            return None
        return f"{len(self.ignored)} settings have no meaning here and are ignored: {', '.join(self.ignored)}"


def load(
    file: Path | None = None,
    overrides: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    parts: Iterable[type] = (),
) -> LoadedSettings:
    """Merge all sources; ``overrides`` are ``NAME=VALUE``, ``parts`` of the settings what a broker does not have.

    Raise `InvalidConfig` for what cannot be.

    Inside one source the finer of Kafka's three retention settings wins (ms, minutes, hours), as in Kafka.
    """
    environment = os.environ if environment is None else environment
    sources = [] if file is None else [(str(file), read_properties(file))]
    of_image, odd = image_settings(environment)
    sources.append(("the environment of a container image", of_image))
    sources.append(("the environment", _from_environment(environment)))
    sources.append(("--set", _from_overrides(overrides)))
    loaded = _merged(sources, Settings().with_parts(parts))
    if not _is_built_in(loaded.settings):
        from magnetar.logs.storage import opening
        from magnetar.node import handlers  # only now: they bring the whole broker along

        parts = [*handlers.parts_of(loaded.settings), *opening.parts_of(loaded.settings)]
        loaded = _merged(sources, Settings().with_parts(parts))
    loaded = _without_absent_listeners(loaded, [name for _, texts in sources for name in texts])
    for name in sources[-1][1]:
        if name in loaded.ignored and not _is_kafkas(name):
            raise InvalidConfig(
                f"--set {name}: no setting is called {name}{_near(name, loaded.settings.declared)}"
            )
    if not loaded.settings.node.metadata_url.startswith("zk:"):
        idle = [name for _, texts in sources[:-2] for name in texts if _is_a_clusters(name, loaded.settings)]
        loaded = replace(loaded, ignored=tuple(dict.fromkeys((*loaded.ignored, *idle))))
    ignored = (*loaded.ignored, *map(printable, odd))
    told = SettingOrigins(loaded.settings.told.sources, tuple(map(printable, ignored)))
    return LoadedSettings(loaded.settings.with_told(told), ignored)


def _is_kafkas(name: str) -> bool:
    """Whether a Kafka broker has a setting of that name."""
    from magnetar.settings.kafka_names import KAFKA_SETTINGS  # for who gives what means nothing here

    return name in KAFKA_SETTINGS


def _is_a_clusters(name: str, settings: Settings) -> bool:
    """Whether a setting means nothing to a broker that is none of a cluster."""
    found = settings.declared.find(name)
    return found is not None and settings.declared.part_of[found[0].field] in (ClusterSettings, LoadSettings)


def _is_built_in(settings: Settings) -> bool:
    """Whether all that the settings name comes with the broker."""
    node = settings.node
    return (
        BUILT_IN.keys() >= set(node.messaging_protocols)
        and scheme_of(node.metadata_url) in METADATA_STORES
        and scheme_of(node.storage_url) in STORAGE_ENGINES
    )


def _merged(sources: Sequence[tuple[str, Mapping[str, str]]], known: Settings) -> LoadedSettings:
    chosen: dict[str, Value] = {}
    of_listeners: dict[str, dict[str, Value]] = {}
    ignored: list[str] = []
    origins: dict[str, str] = {}
    for source, texts in sources:
        general = _of_all_listeners(texts, source)
        for name in [each for each in general if known.declared.of_a_listener(_bare(each))]:
            listener, definition = known.declared.of_a_listener(_bare(name)) or ("", None)
            assert definition is not None
            text = general.pop(name)
            of_listeners.setdefault(listener, {})[definition.field] = _parsed(
                definition, text, source, _bare(name)
            )
            origins[f"{listener}/{definition.field}"] = source
        values = _values(general, source, ignored, known.declared)
        chosen |= values
        origins |= dict.fromkeys(values, source)
    settings = known.with_fields(chosen).with_listeners(of_listeners).with_told(SettingOrigins(origins))
    modules = [str(each[_USERS]) for each in of_listeners.values() if each.get(_USERS)]
    if modules and not chosen.get(_USERS):
        from magnetar.auth.jaas import of_all, users_of  # few have any

        everywhere = of_all(modules)
        settings = settings.with_fields({_USERS: everywhere} if users_of(everywhere) else {})
    return LoadedSettings(settings, tuple(dict.fromkeys(ignored)))


def _without_absent_listeners(loaded: LoadedSettings, names: Iterable[str]) -> LoadedSettings:
    """Count as ignored what is said of listeners that are not served."""
    served = cast("tuple[str, ...]", loaded.settings.value("listeners"))
    there = {plain(each.partition("://")[0]) for each in served}
    found = ((each, loaded.settings.declared.of_a_listener(_bare(each))) for each in names)
    idle = [name for name, own in found if own is not None and own[0] not in there]
    return replace(loaded, ignored=tuple(dict.fromkeys((*loaded.ignored, *idle)))) if idle else loaded


def _bare(name: str) -> str:
    return name.removeprefix(ENVIRONMENT_PREFIX)


def _of_all_listeners(texts: Mapping[str, str], source: str) -> dict[str, str]:
    """Return the texts with what Kafka says of each listener, and is said of all here, under its name here."""
    found: dict[str, str] = {}
    for name, text in texts.items():
        match = _OF_ALL_LISTENERS.fullmatch(name)
        known = name if match is None else match[1].lower()
        if match is not None and found.get(known, text) != text:
            raise InvalidConfig(
                f"{name} is not what it is for another listener: all have the same here (from {source})"
            )
        found[known] = text
    return found


def read_properties(file: Path) -> dict[str, str]:
    """Read ``name=value`` lines (Java properties): ``#`` and ``!`` begin comments, a backslash joins lines.

    Elsewhere it makes the next character plain, or is a tab, a line's end or ``\\uXXXX``, as ``Properties.store``
    writes them.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"cannot read the configuration file {file}: {error}") from error
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is None or not pair[1].strip():
            raise InvalidConfig(f"{file}, line {number}: expected name=value, not {line!r}")
        found[_unescaped(pair[1].strip())] = _unescaped(pair[2].strip())
    return found


def _unescaped(text: str) -> str:
    return (
        _ESCAPE.sub(lambda each: _MEANT.get(each[1]) or _character(each[1]), text) if "\\" in text else text
    )


def _character(escaped: str) -> str:
    return chr(int(escaped[1:], 16)) if len(escaped) > 1 else escaped


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending, first = "", 0
    if pending:
        yield first, pending


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_THE_BROKERS
    }


def _from_overrides(overrides: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for override in overrides:
        name, separator, value = override.partition("=")
        name = name.strip()
        if not separator:
            raise InvalidConfig(f"--set {override}: expected NAME=VALUE")
        found[name] = value.strip()
    return found


def _values(
    texts: Mapping[str, str], source: str, ignored: list[str], declared: Declared
) -> dict[str, Value]:
    """Turn one source into values by field; of several names for one setting the strongest wins."""
    best: dict[str, tuple[int, SettingDef, str]] = {}
    names: dict[str, str] = {}
    """By field, the name that the user wrote."""
    for name, text in texts.items():
        found = declared.find_all(_bare(name))
        if not found:
            ignored.extend([name] if text else [])
        for definition, feed in found:
            converted = feed.convert(text) if text or feed.name == definition.name else None
            if converted is None:
                continue
            rank = definition.feeds.index(feed)
            if definition.field not in best or rank < best[definition.field][0]:
                best[definition.field] = (rank, definition, converted)
                names[definition.field] = _bare(name)
    values = {
        field: _parsed(definition, text, source, names[field])
        for field, (_, definition, text) in best.items()
    }
    for field, (rank, definition, _) in best.items():
        if definition.is_without_effect and values[field] != definition.default:
            ignored.append(definition.feeds[rank].name)
    return values


def _parsed(definition: SettingDef, text: str, source: str, name: str) -> Value:
    try:
        return definition.parse(text)
    except InvalidConfig as error:
        written = "" if name == definition.name else f" as {name}"
        raise InvalidConfig(f"{error} (from {source}{written})") from None


def _near(name: str, declared: Declared) -> str:
    import difflib  # for who mistyped a name, and nobody else

    names = [feed.name for each in declared.definitions.values() for feed in each.feeds]
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""
