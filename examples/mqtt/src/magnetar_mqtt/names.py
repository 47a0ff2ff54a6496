"""Topics of MQTT and of Magnetar: ``sensors/kitchen`` is ``sensors.kitchen``, and nothing else is.

A topic of MQTT is levels with slashes between them, and a short name of Magnetar's has dots there. So that each has one
name on either side, levels are made of Kafka's letters without the dot; topics with others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LEVEL = re.compile(r"[A-Za-z0-9_-]*")
_MAX_LETTERS = 249  # Kafka's own bound


class NoTopic(ValueError):
    """A name or a filter that no topic can have."""


def to_magnetar(topic: str) -> str:
    """Return the short name of the topic that an MQTT client means; raise `NoTopic`."""
    levels = topic.split("/")
    if not all(_LEVEL.fullmatch(each) for each in levels):
        raise NoTopic(f"{topic!r}: levels are made of letters, digits, _ and - here")
    name = ".".join(levels)
    if not name.strip(".") or len(name) > _MAX_LETTERS:
        raise NoTopic(f"{topic!r} is empty or longer than {_MAX_LETTERS} letters")
    return name


def to_mqtt(name: str) -> str:
    """Return what MQTT's clients call the topic with this short name."""
    return name.replace(".", "/")


def check_filter(pattern: str) -> None:
    """Raise `NoTopic` unless this is a filter: ``+`` for one level, ``#`` at the end for all below."""
    levels = pattern.split("/")
    for number, level in enumerate(levels):
        if level == "+" or (level == "#" and number == len(levels) - 1):
            continue
        if not _LEVEL.fullmatch(level):
            raise NoTopic(f"{pattern!r} is no filter that a topic here could match")


def matches(pattern: str, topic: str) -> bool:
    """Return whether a topic of MQTT is among those that a filter means."""
    return _matches(pattern.split("/"), topic.split("/"))


def _matches(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    for number, each in enumerate(pattern):
        if each == "#":
            return True
        if number >= len(levels) or each not in ("+", levels[number]):
            return False
    return len(pattern) == len(levels)
