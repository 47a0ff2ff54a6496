"""What a consumer group has done apart from its decider."""

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
    """A target to be made by an assignor."""

    kind: ClassVar[str] = "consumer"
    assignor: str
    subscribers: tuple[Subscriber, ...]
    sizes: Sizes

    @property
    def work(self) -> int:
        """The number of members and partitions it is about."""
        return len(self.subscribers) + sum(self.sizes.values())

    def make(self) -> Targets:
        """Return what each member is to have; takes a while."""
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
        """Match them; other work has its turn meanwhile."""
        return resolve(topics, self.regexes, self.shows)
