"""A login at bookies, by the settings that Pulsar's brokers have for it. BookKeeper's own client does it, in Java."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BookieLogin:
    """What BookKeeper's client proves with who it is: a class of Java's, and a property that this reads."""

    plugin: str
    parameters_name: str = ""
    parameters: str = field(default="", repr=False)
