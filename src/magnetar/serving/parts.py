"""The façade of this room: its objects in one broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.serving.connections import Connections
from magnetar.serving.idle_poll import IdlePoll
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import MemoryBudget


@dataclass(frozen=True, slots=True)
class ServingParts:
    """The state that connections of all protocols share."""

    connections: Connections
    idle_poll: IdlePoll
    memory: MemoryBudget
    """Counts what clients of all protocols make the broker store."""
    listeners: list[Listener] = field(default_factory=list)
    """Those that are open, with their ports."""
