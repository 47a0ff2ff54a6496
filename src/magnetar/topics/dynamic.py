"""Settings changed while brokers run, by Kafka's names: for one broker, and by default for all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from magnetar.base.errors import NotDynamic
from magnetar.base.setting import SettingDef
from magnetar.metadata import MUST_NOT_EXIST, MetadataCorrupt, Put, Stored
from magnetar.metadata.cache import MetadataCache
from magnetar.settings.kafka_dynamic import WITHOUT_EFFECT
from magnetar.settings.settings import Settings

_ROOT = "/magnetar/dynamic-settings"


class DynamicSettings:
    """The settings stored for this broker (``own``) and for all (``default``); the former take precedence."""

    root = _ROOT

    def __init__(self, cache: MetadataCache, node_id: int, changed: Callable[[], None]) -> None:
        """``changed`` is called when one of them has changed, whichever broker did it."""
        self._cache = cache
        self._own, self._default = f"{_ROOT}/{node_id}", f"{_ROOT}/default"
        self._changed = changed
        self._stored: dict[str, tuple[dict[str, str], int]] = {}
        """By path: the stored settings, and their version."""

    @property
    def own(self) -> dict[str, str]:
        return self._of(self._own)[0]

    @property
    def default(self) -> dict[str, str]:
        return self._of(self._default)[0]

    def settings(self, static: Settings) -> Settings:
        """Return the settings in force."""
        both = self.default | self.own
        return static.with_values({name: text for name, text in both.items() if name not in WITHOUT_EFFECT})

    def known(self) -> Iterable[str]:
        return tuple(self._stored)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored settings of this broker or of all."""
        if path not in (self._own, self._default):
            return
        before = self._of(path)
        now = ({}, MUST_NOT_EXIST) if stored is None else (_decode(path, stored.value), stored.version)
        if now != before:
            self._stored[path] = now
            self._changed()

    async def change(self, plan: Callable[[], Mapping[str, str]], *, for_all: bool) -> None:
        """Replace the stored settings by those that ``plan`` returns, all of them checked by `check_dynamic`."""
        path = self._default if for_all else self._own

        def ops() -> list[Put]:
            value = json.dumps(dict(plan()), sort_keys=True).encode()
            return [Put(path, value, self._of(path)[1])]

        await self._cache.change(ops)

    def _of(self, path: str) -> tuple[dict[str, str], int]:
        return self._stored.get(path, ({}, MUST_NOT_EXIST))


def _decode(path: str, value: bytes) -> dict[str, str]:
    try:
        return {str(key): str(text) for key, text in json.loads(value).items()}
    except (ValueError, AttributeError) as error:
        raise MetadataCorrupt(path, f"not settings: {error}") from error


def check_dynamic(settings: Settings, name: str, text: str) -> SettingDef:
    """Return the setting if it may get this value while the broker runs; otherwise raise `NotDynamic` or
    `InvalidConfig`.
    """
    setting = dynamic_setting(settings, name)
    setting.parse(text)
    return setting


def dynamic_setting(settings: Settings, name: str) -> SettingDef:
    """Return the setting of exactly this name if it may change while the broker runs."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    found = settings.declared.find(name)
    if found is None or found[0].name != name or not found[0].dynamic:
        raise NotDynamic(f"Cannot update these configs dynamically: [{name}]")
    return found[0]
