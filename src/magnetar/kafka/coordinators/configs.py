"""The configurations of one group: Kafka's GROUP resource, as a table.

Most configurations replace a setting of the broker for one group, within limits from further settings. A new kind of
group adds its lines to `GROUP_CONFIGS`, and gets its own part of the settings from `GroupConfigs.of`. Names, limits and
words are those of Kafka 4.4's ``GroupConfig``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, cast

from magnetar.base.errors import InvalidConfig, InvalidTopic
from magnetar.base.setting import HandlerSettings, SettingDef, definitions_of
from magnetar.base.values import Kind, Rule, Value, parse
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.settings.settings import Settings
from magnetar.topics.names import TopicName

Part = TypeVar("Part", bound=HandlerSettings)
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPIES = "errors.deadletterqueue.copy.record.enable"
OF_DEAD_LETTERS = (DEAD_LETTER_TOPIC, DEAD_LETTER_COPIES)
"""The configurations of where a group's dead letters go, and what is in them."""
Own = dict[str, str]
"""A group's own configurations, as texts by their names."""


@dataclass(frozen=True, slots=True)
class GroupConfigDef:
    """One configuration of groups. Without a ``setting`` that it replaces, it has a default of its own."""

    name: str
    kind: Kind
    doc: str
    rule: Rule | None = None
    default: Value = None
    part: type[HandlerSettings] | None = None
    setting: SettingDef | None = None
    """The setting for groups without a value of their own."""
    least: str = ""
    """The field of the part that is the lower limit, if there is one."""
    most: str = ""
    """The field of the part that is the upper limit."""

    def parse(self, text: str) -> Value:
        """Return the value that ``text`` stands for; raise `InvalidConfig`."""
        return parse(self.name, self.kind, text, self.rule)

    def limits(self, settings: Settings) -> tuple[int | None, int | None]:
        """Return the least and the greatest value that the broker's settings allow."""
        return (
            cast(int, settings.value(self.least)) if self.least else None,
            cast(int, settings.value(self.most)) if self.most else None,
        )

    def check(self, value: Value, settings: Settings) -> None:
        """Raise `InvalidConfig` if the value is beyond the limits."""
        if not isinstance(value, int):
            return
        least, most = self.limits(settings)
        if least is not None and most is not None:
            if not least <= value <= most:
                raise InvalidConfig(f"{self.name} must be in the range {least} to {most} inclusive.")
        elif most is not None and value > most:
            raise InvalidConfig(f"{self.name} must be less than or equal to {most}")
        elif least is not None and value < least:
            raise InvalidConfig(f"{self.name} must be greater than or equal to {least}")

    def in_force(self, text: str, settings: Settings) -> Value:
        """Return the effective value: a stored value, cut to the limits if these became narrower since it was set."""
        value = self.parse(text)
        if isinstance(value, int):
            least, most = self.limits(settings)
            value = value if most is None else min(value, most)
            value = value if least is None else max(value, least)
        return value


def stands_for(
    name: str, part: type[HandlerSettings], field: str, *, least: str = "", most: str = ""
) -> GroupConfigDef:
    """Return the line of a configuration that replaces a field of a part of the settings."""
    setting = definitions_of(part)[field]
    return GroupConfigDef(
        name, setting.kind, setting.doc, setting.rule, setting.default, part, setting, least, most
    )


def _lines(*lines: GroupConfigDef) -> dict[str, GroupConfigDef]:
    return {line.name: line for line in lines}


GROUP_CONFIGS: dict[str, GroupConfigDef] = _lines(
    stands_for(
        "consumer.session.timeout.ms",
        GroupSettings,
        "group_consumer_session_timeout_ms",
        least="group_consumer_min_session_timeout_ms",
        most="group_consumer_max_session_timeout_ms",
    ),
    stands_for(
        "consumer.heartbeat.interval.ms",
        GroupSettings,
        "group_consumer_heartbeat_interval_ms",
        least="group_consumer_min_heartbeat_interval_ms",
        most="group_consumer_max_heartbeat_interval_ms",
    ),
    stands_for(
        "consumer.assignment.interval.ms",
        GroupSettings,
        "group_consumer_assignment_interval_ms",
        least="group_consumer_min_assignment_interval_ms",
        most="group_consumer_max_assignment_interval_ms",
    ),
    stands_for(
        DEAD_LETTER_COPIES,
        ShareSettings,
        "errors_deadletterqueue_copy_record_enable",
    ),
    stands_for(DEAD_LETTER_TOPIC, ShareSettings, "errors_deadletterqueue_topic_name"),
    stands_for("share.auto.offset.reset", ShareSettings, "share_auto_offset_reset"),
    stands_for("share.isolation.level", ShareSettings, "share_isolation_level"),
    stands_for("share.renew.acknowledge.enable", ShareSettings, "share_renew_acknowledge_enable"),
    stands_for(
        "share.session.timeout.ms",
        ShareSettings,
        "group_share_session_timeout_ms",
        least="group_share_min_session_timeout_ms",
        most="group_share_max_session_timeout_ms",
    ),
    stands_for(
        "share.heartbeat.interval.ms",
        ShareSettings,
        "group_share_heartbeat_interval_ms",
        least="group_share_min_heartbeat_interval_ms",
        most="group_share_max_heartbeat_interval_ms",
    ),
    stands_for(
        "share.assignment.interval.ms",
        ShareSettings,
        "group_share_assignment_interval_ms",
        least="group_share_min_assignment_interval_ms",
        most="group_share_max_assignment_interval_ms",
    ),
    stands_for(
        "share.record.lock.duration.ms",
        ShareSettings,
        "group_share_record_lock_duration_ms",
        least="group_share_min_record_lock_duration_ms",
        most="group_share_max_record_lock_duration_ms",
    ),
    stands_for(
        "share.delivery.count.limit",
        ShareSettings,
        "group_share_delivery_count_limit",
        least="group_share_min_delivery_count_limit",
        most="group_share_max_delivery_count_limit",
    ),
    stands_for(
        "share.partition.max.record.locks",
        ShareSettings,
        "group_share_partition_max_record_locks",
        least="group_share_min_partition_max_record_locks",
        most="group_share_max_partition_max_record_locks",
    ),
    stands_for(
        "streams.session.timeout.ms",
        StreamsSettings,
        "group_streams_session_timeout_ms",
        least="group_streams_min_session_timeout_ms",
        most="group_streams_max_session_timeout_ms",
    ),
    stands_for(
        "streams.heartbeat.interval.ms",
        StreamsSettings,
        "group_streams_heartbeat_interval_ms",
        least="group_streams_min_heartbeat_interval_ms",
        most="group_streams_max_heartbeat_interval_ms",
    ),
    stands_for(
        "streams.num.standby.replicas",
        StreamsSettings,
        "group_streams_num_standby_replicas",
        most="group_streams_max_standby_replicas",
    ),
    stands_for(
        "streams.initial.rebalance.delay.ms", StreamsSettings, "group_streams_initial_rebalance_delay_ms"
    ),
    stands_for(
        "streams.assignment.interval.ms",
        StreamsSettings,
        "group_streams_assignment_interval_ms",
        least="group_streams_min_assignment_interval_ms",
        most="group_streams_max_assignment_interval_ms",
    ),
)
"""All configurations that have an effect, by their names."""

SESSIONS_AND_HEARTBEATS: list[tuple[str, str]] = [
    ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "streams.heartbeat.interval.ms"),
]
"""Pairs of which the first must be greater than the second, if a group has a value of its own for either."""


def definition(name: str) -> GroupConfigDef:
    """Return the definition of a configuration; raise `InvalidConfig` for unknown names."""
    found = GROUP_CONFIGS.get(name)
    if found is None:
        raise InvalidConfig(f"Unknown group config name: {name}")
    return found


def check_own(own: Mapping[str, str], settings: Settings) -> None:
    """Raise `InvalidConfig` unless a group may have these configurations of its own."""
    values = {name: definition(name).parse(text) for name, text in own.items()}
    for name, value in values.items():
        GROUP_CONFIGS[name].check(value, settings)
    _check_dead_letter_topic(cast(str, values.get(DEAD_LETTER_TOPIC, "")))
    for longer, shorter in SESSIONS_AND_HEARTBEATS:
        if longer in values or shorter in values:
            session, heartbeat = (
                values.get(name, broker_value(GROUP_CONFIGS[name], settings)) for name in (longer, shorter)
            )
            if cast(int, session) <= cast(int, heartbeat):
                raise InvalidConfig(f"{longer} must be greater than {shorter}")


def _check_dead_letter_topic(name: str) -> None:
    if name.rpartition("/")[2].startswith("__"):
        raise InvalidConfig(f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")
    if name:
        try:
            TopicName.parse(name)
        except InvalidTopic as error:
            raise InvalidConfig(f"{DEAD_LETTER_TOPIC}: {error}") from error


def broker_value(config: GroupConfigDef, settings: Settings) -> Value:
    """Return the value for groups without one of their own."""
    return config.default if config.setting is None else settings.value(config.setting.field)


def with_own(base: Part, own: Mapping[str, str], settings: Settings) -> Part:
    """Return a part of the settings as it is for a group with configurations of its own."""
    fields = {}
    for name, text in own.items():
        config = GROUP_CONFIGS.get(name)
        if config is not None and config.setting is not None and config.part is type(base):
            fields[config.setting.field] = config.in_force(text, settings)
    return replace(base, **fields) if fields else base  # type: ignore[type-var]


class GroupConfigs(Protocol):
    """The configurations of the groups of one coordinator."""

    def of(self, group_id: str, part: type[Part]) -> Part:
        """Return a part of the settings as it is in force for a group."""
        ...

    def own(self, group_id: str) -> Mapping[str, str]:
        """Return the configurations of one group."""
        ...

    def groups(self) -> Iterable[str]:
        """Return the groups that have configurations of their own, whether there is such a group or not."""
        ...

    def named_by(self, group_id: str) -> str:
        """Return the role that named a group's dead-letter queue; empty for none, and for the broker's settings."""
        ...

    async def change(
        self, group_id: str, change: Callable[[Own], Own], *, by: str = "", validate_only: bool = False
    ) -> None:
        """Replace a group's own configurations by the result of ``change``; raise `InvalidConfig`.

        ``by`` is the role that requests it.
        """
        ...


class SameForAll:
    """No configurations for single groups, which cannot be set either."""

    def __init__(self, settings: Callable[[], GroupSettings]) -> None:
        self._settings = settings

    def of(self, group_id: str, part: type[Part]) -> Part:
        """Return the broker's settings, or defaults."""
        settings = self._settings()
        return cast(Part, settings) if part is GroupSettings else part()

    def own(self, group_id: str) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def groups(self) -> Iterable[str]:
        """Return nothing."""
        return ()

    def named_by(self, group_id: str) -> str:
        """Return nothing."""
        return ""

    async def change(
        self, group_id: str, change: Callable[[Own], Own], *, by: str = "", validate_only: bool = False
    ) -> None:
        """Refuse."""
        raise InvalidConfig("Groups cannot be configured here.")
