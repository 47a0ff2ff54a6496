"""Actions of consumer groups that run outside their decider."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from magnetar.kafka.coordinators.actions import GroupAction, TargetAction
from magnetar.kafka.coordinators.topics import Shows, Topics, resolve

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.consumer.assignors import Sizes, Subscriber, Targets


@dataclass(frozen=True, slots=True)
class MakeTarget(TargetAction):
    """A target to be computed by an assignor."""

    kind: ClassVar[str] = "consumer"
    assignor: str
    subscribers: tuple[Subscriber, ...]
    sizes: Sizes

    @property
    def work(self) -> int:
        """The number of members and partitions of the target."""
        return len(self.subscribers) + sum(self.sizes.values())

    def make(self) -> Targets:
        """Return the target of each member; this takes a while."""
        from magnetar.kafka.coordinators.consumer.assignors import ASSIGNORS

        return ASSIGNORS[self.assignor](self.subscribers, self.sizes)


@dataclass(frozen=True, slots=True)
class ResolveRegexes(GroupAction):
    """Expressions to be matched against the names of all topics."""

    kind: ClassVar[str] = "consumer"
    regexes: tuple[str, ...]
    version: int
    shows: Shows | None

    def carry_out(self, topics: Topics) -> Awaitable[dict[str, frozenset[str]]]:
        """Match them; the event loop gets turns meanwhile."""
        return resolve(topics, self.regexes, self.shows)
