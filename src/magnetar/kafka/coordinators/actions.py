"""What groups have done apart from their decider. In a module of its own: every broker has what carries it out, and not
the kinds of groups that ask for it.
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
        """Return what does it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TargetAction(GroupAction):
    """A target to be made for an epoch of a group."""

    epoch: int

    @property
    def work(self) -> int:
        """The number of members and partitions it is about."""
        raise NotImplementedError

    def make(self) -> Mapping[str, Any]:
        """Return what each member is to have; takes a while."""
        raise NotImplementedError

    def carry_out(self, topics: Topics) -> Awaitable[object]:
        """Make it in a thread."""
        return asyncio.to_thread(self.make)
