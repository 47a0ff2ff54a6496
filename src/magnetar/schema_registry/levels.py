"""Compatibility levels and modes, by Confluent's names."""

from __future__ import annotations

from enum import Enum


class Compatibility(Enum):
    """What a new version must be to the older ones, by words that Confluent and Pulsar share."""

    @property
    def reads_older(self) -> bool:
        """Whether it must read what older versions wrote."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        """Whether older versions must read what it writes."""
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        """Whether that goes for all older versions, not only the latest."""
        return self.name.endswith("TRANSITIVE")


class Level(Compatibility):
    """What a new version must be to the older ones."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class Mode(Enum):
    """What may be done with subjects."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    """Schemas are registered with the ids and versions that they have elsewhere."""
