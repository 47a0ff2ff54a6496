"""What may have configurations."""

from __future__ import annotations

from enum import IntEnum


class ConfigResourceType(IntEnum):
    """What may have configurations, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
