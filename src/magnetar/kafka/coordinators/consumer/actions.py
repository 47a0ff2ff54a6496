"""What a consumer group has done apart from its decider. In a module of its own: who carries it out is there in every
broker, and the groups are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.coordination.decision import Action

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.consumer.assignors import Sizes, Subscriber, Targets
    from magnetar.kafka.coordinators.consumer.topics import Shows


@dataclass(frozen=True, slots=True)
class MakeTarget(Action):
    """A target to be made apart from the event loop, for an epoch of a group."""

    group_id: str
    epoch: int
    assignor: str
    subscribers: tuple[Subscriber, ...]
    sizes: Sizes

    def make(self) -> Targets:
        """Return who should have what; takes a while."""
        from magnetar.kafka.coordinators.consumer.assignors import ASSIGNORS

        return ASSIGNORS[self.assignor](self.subscribers, self.sizes)


@dataclass(frozen=True, slots=True)
class ResolveRegexes(Action):
    """Expressions to be held against the names of all topics."""

    group_id: str
    regexes: tuple[str, ...]
    version: int
    shows: Shows | None
