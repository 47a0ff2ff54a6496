"""Configurations of topics and brokers: what is in force, where it comes from, and how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid
from magnetar.admin.refusals import check
from magnetar.base.values import render
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.wire.kafka.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from magnetar.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from magnetar.wire.kafka.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

_SOURCES = {
    1: "topic",
    2: "broker, while running",
    3: "all brokers, while running",
    4: "broker's start",
    5: "default",
    6: "logger",
    8: "group",
}
_SET, _DELETE = 0, 1


class ResourceKind(IntEnum):
    """What has configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One configuration in force. ``value`` is None where it is secret or not set."""

    name: str
    value: str | None
    source: str
    read_only: bool
    documentation: str


@dataclass(frozen=True, slots=True)
class Configs:
    """The configurations of one topic or broker; ``name`` is empty for all brokers."""

    kind: str
    name: str
    configs: tuple[ConfigRow, ...]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting that ``magnetar standalone`` takes."""

    name: str
    default: str
    unit: str
    while_running: bool
    also: tuple[str, ...]
    documentation: str


def describe_configs(cluster: ClusterAdmin, kind: ResourceKind, name: str) -> Configs:
    """Return every configuration of a topic or broker."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_documentation=True)
    said = cluster.ask_node(_node(kind, name), request, DescribeConfigsResponse)
    result = said.results[0]
    check(result.error_code, result.error_message, f"{kind.name.lower()} {name}".strip())
    return Configs(
        kind.name.lower(), name, tuple(sorted(map(_row, result.configs), key=lambda row: row.name))
    )


def _node(kind: ResourceKind, name: str) -> int | None:
    """Return the broker that has to be asked about a resource, if it is not all the same which."""
    return int(name) if kind is not ResourceKind.TOPIC and name.isdecimal() else None


def _row(config: DescribeConfigsResourceResult) -> ConfigRow:
    return ConfigRow(
        name=config.name,
        value=None if config.is_sensitive else config.value,
        source=_SOURCES.get(config.config_source, "unknown"),
        read_only=config.read_only,
        documentation=config.documentation or "",
    )


def alter_configs(
    cluster: ClusterAdmin,
    kind: ResourceKind,
    name: str,
    changes: Mapping[str, str | None],
    *,
    dry_run: bool = False,
) -> Configs:
    """Set the configurations named, None returning one to what it follows; give all as they are then."""
    rows = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    asked = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=dry_run)
    said = cluster.ask_node(_node(kind, name), request, IncrementalAlterConfigsResponse)
    result = said.responses[0]
    check(
        result.error_code,
        result.error_message,
        f"{kind.name.lower()} {name}".strip(),
        "'magnetar config settings' names all settings, and those that change while running.",
    )
    return describe_configs(cluster, kind, name)


def parse_configs(pairs: list[str]) -> dict[str, str | None]:
    """Read ``NAME=VALUE`` pairs; raise `Invalid`."""
    parsed: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Invalid(f"{pair!r} is no configuration", "Write NAME=VALUE, as in retention.ms=3600000.")
        parsed[name.strip()] = value
    return parsed


def all_settings() -> tuple[SettingRow, ...]:
    """Return every setting of the broker with its documentation."""
    return tuple(
        SettingRow(
            name=each.name,
            default=render(each.default) or "",
            unit=each.unit,
            while_running=each.dynamic,
            also=tuple(feed.name for feed in each.feeds[1:]),
            documentation=each.doc,
        )
        for each in Settings().declared.definitions.values()
    )
