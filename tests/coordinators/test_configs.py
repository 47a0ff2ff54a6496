"""What a group's own configurations come to where the broker's limits have become narrower since they were set."""

from __future__ import annotations

from typing import Any, cast

import pytest

from magnetar.kafka.coordinators.configs import GROUP_CONFIGS, GroupConfigDef
from magnetar.settings.settings import Settings

WITH_LIMITS = [each for each in GROUP_CONFIGS.values() if each.most]


def limited(config: GroupConfigDef, least: int, most: int) -> Settings:
    """Return settings that allow a configuration this much."""
    limits = {name: limit for name, limit in ((config.least, least), (config.most, most)) if name}
    return Settings(cast(Any, config.part)(**limits))


@pytest.mark.parametrize("config", WITH_LIMITS, ids=lambda config: config.name)
def test_what_is_stored_holds_within_the_limits_of_now(config: GroupConfigDef) -> None:
    least = max(cast(int, config.default), 5)
    most = least + 2
    settings = limited(config, least, most)
    stored = range(least - 1, most + 2)
    expected = [least if config.least else least - 1, least, least + 1, most, most]
    assert [config.in_force(str(value), settings) for value in stored] == expected


def test_what_has_no_limits_is_as_it_is_stored() -> None:
    config = GROUP_CONFIGS["streams.initial.rebalance.delay.ms"]
    assert [config.in_force(text, Settings()) for text in ("0", "86400000")] == [0, 86_400_000]
    assert GROUP_CONFIGS["share.renew.acknowledge.enable"].in_force("false", Settings()) is False
