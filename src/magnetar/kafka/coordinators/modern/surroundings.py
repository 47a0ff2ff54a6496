"""The arguments of the rules of modern groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from magnetar.base.setting import HandlerSettings
from magnetar.kafka.coordinators.topics import Topics

Part = TypeVar("Part", bound=HandlerSettings)


class SettingsOfGroups(Protocol):
    """The settings of groups (`magnetar.kafka.coordinators.configs.GroupConfigs`)."""

    def of(self, group_id: str, part: type[Part]) -> Part:
        """Return a part of the settings as it is in force for a group."""
        ...


class Surroundings(NamedTuple):
    """The arguments that the rules of each kind are made with."""

    configs: SettingsOfGroups
    topics: Topics
    new_id: Callable[[], str]
    """Returns texts that never repeat."""
    downgrade: Callable[..., None]
    """Makes a classic group of a consumer group, without some members (`magnetar.kafka.coordinators.migration`)."""
