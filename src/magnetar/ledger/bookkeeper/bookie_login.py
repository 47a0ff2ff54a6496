"""A login at bookies, by the settings of Pulsar brokers. BookKeeper's own client does it, in Java."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BookieLogin:
    """The credentials of BookKeeper's client: a Java class, and a property that it reads."""

    plugin: str
    parameters_name: str = ""
    parameters: str = field(default="", repr=False)
