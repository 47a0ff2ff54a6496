"""What DescribeConfigs tells of a topic, of a group, of the broker, and of all brokers' defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from magnetar.base.setting import SettingDef
from magnetar.base.values import Kind, render
from magnetar.kafka.coordinators.configs import GROUP_CONFIGS, GroupConfigDef
from magnetar.kafka.settings import KafkaSettings
from magnetar.node.broker import Broker
from magnetar.serving.url_listeners import HTTP
from magnetar.settings.kafka_dynamic import SHOWN_WHEN_SET, WITHOUT_EFFECT
from magnetar.settings.settings import Settings
from magnetar.topics.effective import ConfigSource, Origin
from magnetar.topics.topic import Topic
from magnetar.topics.topic_config import CONFIGS

ADMIN_URL = "magnetar.admin.url"
Row = TypeVar("Row")


class ConfigEntry(NamedTuple):
    """One configuration; ``origins`` are all places that have a value, the one in force first."""

    name: str
    origins: list[Origin]
    kind: Kind
    read_only: bool
    doc: str

    @property
    def value(self) -> str | None:
        """What is in force; secrets are never told."""
        return None if self.sensitive else self.origins[0].value

    @property
    def sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.kind is Kind.PASSWORD


def topic_entries(broker: Broker, topic: Topic) -> list[ConfigEntry]:
    """Return all that can be configured for a topic."""
    policies = broker.topic_policies(topic)
    return [
        ConfigEntry(
            config.name,
            broker.authority.topic_origins(config, topic, policies),
            config.kind,
            False,
            config.doc,
        )
        for config in CONFIGS.values()
    ]


class TopicRows(Generic[Row]):
    """What answers tell of topics' configurations, by ``tell``; topics that say nothing themselves share what
    is told of their namespace's, which makes an answer about many topics small and quick."""

    def __init__(self, broker: Broker, tell: Callable[[ConfigEntry], Row]) -> None:
        self._broker = broker
        self._tell = tell
        self._shared: dict[str, list[Row]] = {}

    def of(self, topic: Topic) -> list[Row]:
        """Return the rows of a topic, which must not be changed."""
        namespace = topic.name.namespace_name
        if topic.overrides or namespace not in self._shared:
            rows = [self._tell(entry) for entry in topic_entries(self._broker, topic)]
            if topic.overrides:
                return rows
            self._shared[namespace] = rows
        return self._shared[namespace]


def broker_entries(broker: Broker) -> list[ConfigEntry]:
    """Return all settings of this broker, and what Kafka's tools look for besides."""
    known = (*broker.settings.declared.definitions.values(), *WITHOUT_EFFECT.values())
    found = [(setting, broker.authority.setting_origins(setting)) for setting in known]
    entries = [
        _entry(setting, origins)
        for setting, origins in found
        if setting.name not in SHOWN_WHEN_SET or origins[0].source is not ConfigSource.DEFAULT
    ]
    return sorted(entries + _fixed_entries(broker.settings) + [_admin_entry(broker)])


def _admin_entry(broker: Broker) -> ConfigEntry:
    """What no setting says, for a port may have been chosen late: where operators' tools ask this broker."""
    ownership = broker.cluster.ownership
    endpoints = next(each.endpoints for each in ownership.brokers() if each.node_id == ownership.node_id)
    urls = [f"{scheme}://{endpoints[name]}" for scheme, name in HTTP.items() if name in endpoints]
    origin = Origin(ADMIN_URL, ",".join(urls), ConfigSource.STATIC_BROKER)
    return ConfigEntry(
        ADMIN_URL, [origin], Kind.LIST, True, "Where the admin REST is served; nowhere if empty."
    )


def group_entries(broker: Broker, own: Mapping[str, str]) -> list[ConfigEntry]:
    """Return all that can be configured for a group; ``own`` is what is set for it."""
    return [
        ConfigEntry(config.name, _group_origins(broker, config, own), config.kind, False, config.doc)
        for config in GROUP_CONFIGS.values()
    ]


def _group_origins(broker: Broker, config: GroupConfigDef, own: Mapping[str, str]) -> list[Origin]:
    origins = []
    if config.name in own:
        value = config.in_force(own[config.name], broker.settings)
        origins.append(Origin(config.name, render(value), ConfigSource.GROUP))
    if config.setting is not None:
        return origins + broker.authority.setting_origins(config.setting)
    return [*origins, Origin(config.name, render(config.default), ConfigSource.DEFAULT)]


def default_entries(broker: Broker) -> list[ConfigEntry]:
    """Return only what was set for all brokers while they ran."""
    stored = sorted(broker.authority.dynamic.default.items())
    settings = broker.settings.declared.definitions.values()
    by_name = {setting.name: setting for setting in settings} | WITHOUT_EFFECT
    return [
        _entry(by_name[name], [Origin(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)])
        for name, text in stored
    ]


def _entry(setting: SettingDef, origins: list[Origin]) -> ConfigEntry:
    doc = f"{setting.doc} ({setting.unit})" if setting.unit else setting.doc
    return ConfigEntry(setting.name, origins, setting.kind, not setting.dynamic, doc)


# What follows from the design or from other settings, under the names that Kafka's tools look for.
_FIXED: tuple[tuple[str, Kind, Callable[[Settings], str | None], str], ...] = (
    (
        "authorizer.class.name",
        Kind.STRING,
        lambda s: s.security.authorization_provider if s.security.authorization_enabled else "",
        "Who decides what clients may do; nobody where it is empty.",
    ),
    ("broker.id", Kind.INT, lambda s: str(s.node.node_id), "The same as node.id."),
    (
        "inter.broker.listener.name",
        Kind.STRING,
        lambda s: s.of(KafkaSettings).listeners[0].partition(":")[0],
        "The first listener.",
    ),
    ("log.dir", Kind.LIST, lambda s: s.node.data_dir, "The data directory."),
    ("log.dirs", Kind.LIST, lambda s: s.node.data_dir, "The data directory."),
    (
        "log.retention.hours",
        Kind.INT,
        lambda s: _part(s.topics.log_retention_ms, 3_600_000),
        "log.retention.ms in hours.",
    ),
    (
        "log.retention.minutes",
        Kind.INT,
        lambda s: _part(s.topics.log_retention_ms, 60_000),
        "log.retention.ms in minutes.",
    ),
    ("log.roll.hours", Kind.INT, lambda s: _part(s.topics.log_roll_ms, 3_600_000), "log.roll.ms in hours."),
    ("offsets.topic.replication.factor", Kind.SHORT, lambda _: "1", "One broker holds each partition."),
    ("process.roles", Kind.LIST, lambda _: "broker,controller", "One process is both."),
    ("transaction.state.log.min.isr", Kind.INT, lambda _: "1", "One broker holds each partition."),
    (
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        lambda _: "1",
        "One broker holds each partition.",
    ),
    ("unclean.leader.election.enable", Kind.BOOLEAN, lambda _: "false", "There is one replica."),
)


def _fixed_entries(settings: Settings) -> list[ConfigEntry]:
    return [
        ConfigEntry(name, [Origin(name, value(settings), _fixed_source(name, settings))], kind, True, doc)
        for name, kind, value, doc in _FIXED
    ]


def _fixed_source(name: str, settings: Settings) -> ConfigSource:
    setting = settings.declared.find(name)
    return (
        ConfigSource.STATIC_BROKER if setting and setting[0].field in settings.given else ConfigSource.DEFAULT
    )


def _part(milliseconds: int, unit: int) -> str | None:
    return render(milliseconds // unit) if milliseconds >= 0 else "-1"
