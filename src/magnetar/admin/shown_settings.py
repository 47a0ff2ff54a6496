"""All settings as operators may see them: with what gave each its value, and without secrets."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.admin.broker_state import SettingShown
from magnetar.auth.redaction import HIDDEN
from magnetar.base.setting import SettingDef
from magnetar.base.values import Kind, Value
from magnetar.settings.settings import Settings


def shown_settings(settings: Settings) -> tuple[SettingShown, ...]:
    """Return every setting with what gave it its value, by name; secrets are hidden, by their definitions' kind."""
    declared, told = settings.declared, settings.told
    found = [
        _shown(definition.name, definition, settings.value(name), told.sources.get(name))
        for name, definition in declared.definitions.items()
    ]
    for listener, values in settings.by_listener.items():
        for name, value in values.items():
            definition = declared.definitions[name]
            source = told.sources.get(f"{listener}/{name}")
            found.append(_shown(f"listener.name.{listener}.{definition.name}", definition, value, source))
    return tuple(sorted(found, key=lambda each: each.name))


def _shown(name: str, definition: SettingDef, value: Value, source: str | None) -> SettingShown:
    if source is None:
        source = "default" if value == definition.default else "derived"
    if definition.kind is Kind.PASSWORD and value:
        return SettingShown(name, HIDDEN, source)
    text = ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
    return SettingShown(name, text, source)


def secrets_of(settings: Settings) -> Iterator[str]:
    """Yield the values that `shown_settings` hides."""
    declared = settings.declared
    for name, definition in declared.definitions.items():
        if definition.kind is Kind.PASSWORD:
            for value in (settings.value(name), *(own.get(name) for own in settings.by_listener.values())):
                if value:
                    yield str(value)


def without_effect(settings: Settings) -> tuple[str, ...]:
    """Return settings that were given and are taken, but of which nothing comes."""
    declared = settings.declared
    return tuple(
        sorted(
            each.name
            for name, each in declared.definitions.items()
            if each.is_without_effect and name in settings.given
        )
    )
