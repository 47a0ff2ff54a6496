"""Which value is in force, and why: from the topic, the namespace, the broker (changed while it runs, or given at
its start), or the default. The sources and their numbers are Kafka's, from DescribeConfigs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from magnetar.base.setting import SettingDef
from magnetar.base.values import Value, render
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.settings.settings import Settings
from magnetar.topics.dynamic import DynamicSettings
from magnetar.topics.policies import NamespacePolicies
from magnetar.topics.topic import Topic
from magnetar.topics.topic_config import CONFIGS, HONOURED, TopicConfig, TopicConfigDef


class ConfigSource(IntEnum):
    """The source of a value."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Origin(NamedTuple):
    """One place that has a value, with the name that the value has there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Authority:
    """All that the configuration of topics depends on besides the topics."""

    static: Settings
    current: Settings
    dynamic: DynamicSettings

    def setting_origins(self, setting: SettingDef) -> list[Origin]:
        """Return every place that has a value for a broker's setting; the first is in force."""
        name = setting.name
        origins = []
        if (text := self.dynamic.own.get(name)) is not None:
            origins.append(Origin(name, text, ConfigSource.DYNAMIC_BROKER))
        if (text := self.dynamic.default.get(name)) is not None:
            origins.append(Origin(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER))
        if setting.field in self.static.given:
            origins.append(Origin(name, render(self.static.value(setting.field)), ConfigSource.STATIC_BROKER))
        return [*origins, Origin(name, render(setting.default), ConfigSource.DEFAULT)]

    def topic_origins(
        self, config: TopicConfigDef, topic: Topic, policies: NamespacePolicies
    ) -> list[Origin]:
        """Return every place that has a value for a topic's configuration; the first is in force."""
        origins = []
        if (text := topic.overrides.get(config.name)) is not None:
            origins.append(Origin(config.name, render(config.parse(text)), ConfigSource.TOPIC))
        if (value := _policy_value(config.name, policies)) is not None:
            origins.append(
                Origin(f"namespace.{config.name}", render(value), ConfigSource.DYNAMIC_DEFAULT_BROKER)
            )
        if config.setting is not None:
            return origins + self.setting_origins(self.static.declared.definitions[config.setting])
        return [*origins, Origin(config.synonym or config.name, render(config.default), ConfigSource.DEFAULT)]

    def namespace_config(self, policies: NamespacePolicies) -> TopicConfig:
        """Return what is in force for a namespace's topics that set nothing themselves."""
        values: dict[str, Value] = {}
        for config in HONOURED:
            value = _policy_value(config.name, policies)
            if value is None and config.setting is not None:
                value = getattr(self.current.topics, config.setting)
            values[_field(config)] = config.default if value is None else value
        return TopicConfig(**values)  # type: ignore[arg-type]

    def ledger_policy(self, topic: Topic, policies: NamespacePolicies) -> LedgerPolicy:
        """Return the ledger policy of the topic's managed ledgers."""
        config, settings = topic.config, self.current.topics
        flush = policies.flush or settings.flush
        deletes = "delete" in config.cleanup_policy
        roll_ms = (
            min(config.segment_ms, config.max_compaction_lag_ms) if config.compacted else config.segment_ms
        )
        return LedgerPolicy(
            flush=Flush.always if config.flush_messages == 1 else Flush(flush),
            max_ledger_bytes=config.segment_bytes,
            max_ledger_entries=settings.ledger_max_entries,
            max_ledger_ms=roll_ms,
            retention_ms=config.retention_ms if deletes else -1,
            retention_bytes=config.retention_bytes if deletes else -1,
        )


def with_overrides(base: TopicConfig, overrides: dict[str, str]) -> TopicConfig:
    """Return what is in force for a topic; stored overrides were checked when they were set."""
    own = {
        _field(CONFIGS[name]): CONFIGS[name].parse(text) for name, text in overrides.items() if _matters(name)
    }
    return replace(base, **own) if own else base  # type: ignore[arg-type]


def _matters(name: str) -> bool:
    return name in CONFIGS and CONFIGS[name].honoured


def _field(config: TopicConfigDef) -> str:
    return config.name.replace(".", "_")


def _policy_value(name: str, policies: NamespacePolicies) -> int | str | None:
    if name == "retention.ms":
        return policies.retention_ms
    if name == "entry.format":
        return policies.entry_format
    if name == "compaction.threshold":
        return policies.compaction_threshold
    return policies.retention_bytes if name == "retention.bytes" else None
