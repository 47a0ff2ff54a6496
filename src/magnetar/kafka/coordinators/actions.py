"""Actions of groups that run outside their decider. In a module of its own: every broker loads the code that carries
them out, but not the kinds of groups that request them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from magnetar.coordination.decision import Action
from magnetar.kafka.coordinators.topics import Topics


@dataclass(frozen=True, slots=True)
class GroupAction(Action):
    """Something to do for one group; its result goes to the rules of the group's kind."""

    kind: ClassVar[str]
    group_id: str

    def carry_out(self, topics: Topics) -> Awaitable[object]:
        """Return an awaitable that carries the action out."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TargetAction(GroupAction):
    """A target to compute for an epoch of a group."""

    epoch: int

    @property
    def work(self) -> int:
        """The number of members and partitions of the target."""
        raise NotImplementedError

    def make(self) -> Mapping[str, Any]:
        """Return the target of each member; this takes a while."""
        raise NotImplementedError

    def carry_out(self, topics: Topics) -> Awaitable[object]:
        """Compute it in a thread."""
        return asyncio.to_thread(self.make)
