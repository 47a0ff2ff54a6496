"""The state of one modern group: the common part of consumer, share and streams groups. Rules are in `members`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committed
from magnetar.wire.kafka.errors import ErrorCode

_FACTS_OF_A_MEMBER = 3
"""Its metadata, its target, and its current assignment."""


class ModernMember(Protocol):
    """One member, a value: each change makes another one."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...


M = TypeVar("M", bound=ModernMember)
T = TypeVar("T")


@dataclass(slots=True)
class ModernGroup(Generic[M, T]):
    """One group; members keep the order in which they came. ``T`` is what a member is assigned."""

    kind: ClassVar[str]
    group_id: str
    epoch: int = 1
    """Grows with each change that requires a new assignment, from 1, as in Kafka: 0 is for members that join."""
    metadata_hash: int = 0
    """The hash of the subscribed topics: their ids and numbers of partitions."""
    assignment_epoch: int = 1
    """The epoch that `targets` are for."""
    members: dict[str, M] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """The member id of each instance id."""
    targets: dict[str, T] = field(default_factory=dict)
    offsets: dict[str, dict[int, Committed]] = field(default_factory=dict)
    heard_ms: dict[str, int] = field(default_factory=dict)
    topics_version: int = -1
    """The version of the topics that `metadata_hash` was made from in this process."""
    assigned_ms: int = -1
    """When the target was last made in this process."""
    assigning: bool = False
    """Whether one is being made in a thread."""

    # Queries.

    @property
    def is_empty(self) -> bool:
        """True if it has no members."""
        return not self.members

    @property
    def gives_way(self) -> bool:
        """True if a classic group may take its name, and if it ends once it has no offsets left."""
        return self.is_empty

    @property
    def yields(self) -> bool:
        """True if a group of another modern kind takes its name with its first member: never, as in Kafka."""
        return False

    @property
    def is_shadow(self) -> bool:
        """True if it only stands for the progress of a linked subscription."""
        return False

    @property
    def is_nothing(self) -> bool:
        """True if nothing is left of it: a modern group lasts until a record ends it."""
        return False

    @property
    def awaits_members(self) -> bool:
        """True if a member is announced that has not joined yet: only the classic protocol has such."""
        return False

    def live_facts(self) -> int:
        """Return about how many facts make it what it is, without its offsets."""
        return _FACTS_OF_A_MEMBER * len(self.members) + 2

    def member(self, member_id: str) -> M:
        """Return a member; refuse unknown ones."""
        member = self.members.get(member_id)
        if member is None:
            raise CoordinatorRefused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def static_member(self, instance_id: str) -> M | None:
        """Return the member that has an instance id."""
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member reads the topic."""
        raise NotImplementedError

    # Committed offsets.

    def check_deletes_offsets(self) -> None:
        """Allow it: only the offsets of topics that members read are refused, one by one."""

    def idle_since_ms(self, topic: str, kept: Committed) -> int | None:
        """Return since when no member reads a topic that it committed an offset for; None while one does."""
        return None if self.is_subscribed_to(topic) else kept.commit_timestamp

    # Changing.

    def put(self, member: M) -> None:
        """Add a member, or replace it by its new state."""
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
            if old.instance_id is not None and old.instance_id != member.instance_id:
                self.static.pop(old.instance_id, None)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> M | None:
        """Remove a member, and its target."""
        member = self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        self.heard_ms.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
                del self.static[member.instance_id]
        return member

    def _count(self, member: M, by: int) -> None:
        """Add a member to the group's counts, or take it out of them."""
