"""Settings changed while brokers run, by Kafka's names: for one broker, and by default for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from magnetar.broker.errors import NotDynamic
from magnetar.broker.kafka_dynamic_settings import WITHOUT_EFFECT
from magnetar.broker.setting import SettingDef
from magnetar.broker.settings import Settings
from magnetar.metadata import MetadataCorrupt, MetadataStore

_ROOT = "/magnetar/dynamic-settings"


class DynamicSettings:
    """What is stored for this broker (``own``) and for all (``default``); the former is stronger."""

    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store.blocking
        self._node = str(node_id)
        self.own: dict[str, str] = self._load(self._node)
        self.default: dict[str, str] = self._load("default")

    def settings(self, static: Settings) -> Settings:
        """Give what is in force."""
        both = self.default | self.own
        return static.with_values({name: text for name, text in both.items() if name not in WITHOUT_EFFECT})

    def replace(self, texts: Mapping[str, str], *, for_all: bool) -> None:
        """Keep new values (checked by `check_dynamic`) in place of the old ones."""
        name = "default" if for_all else self._node
        self._store.put(f"{_ROOT}/{name}", json.dumps(dict(texts), sort_keys=True).encode())
        if for_all:
            self.default = dict(texts)
        else:
            self.own = dict(texts)

    def _load(self, name: str) -> dict[str, str]:
        path = f"{_ROOT}/{name}"
        stored = self._store.get(path)
        if stored is None:
            return {}
        try:
            return {str(key): str(text) for key, text in json.loads(stored.value).items()}
        except (ValueError, AttributeError) as error:
            raise MetadataCorrupt(path, f"not settings: {error}") from error


def check_dynamic(settings: Settings, name: str, text: str) -> SettingDef:
    """Give the setting if it may get this value while the broker runs, else raise `NotDynamic` or `InvalidConfig`."""
    setting = dynamic_setting(settings, name)
    setting.parse(text)
    return setting


def dynamic_setting(settings: Settings, name: str) -> SettingDef:
    """Give the setting of exactly this name if it may change while the broker runs."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    found = settings.declared.find(name)
    if found is None or found[0].name != name or not found[0].dynamic:
        raise NotDynamic(f"Cannot update these configs dynamically: [{name}]")
    return found[0]
