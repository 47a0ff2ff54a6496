"""One share group. Rules are elsewhere; this keeps the books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NoReturn

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committed, Committer
from magnetar.wire.kafka.errors import ErrorCode

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""
NOTHING: Assignment = {}


class ShareGroupState(StrEnum):
    """How far a group is; the names are Kafka's."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member, as its last heartbeats left it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)


@dataclass(slots=True)
class ShareGroup:
    """One group; members keep the order in which they came."""

    kind: ClassVar[str] = "share"
    group_id: str
    epoch: int = 1
    """Grows with whatever asks for a new assignment, from 1, as in Kafka: 0 is of members that join."""
    metadata_hash: int = 0
    """Of the subscribed topics: their ids and numbers of partitions."""
    assignment_epoch: int = 1
    """The epoch that `targets` are for."""
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    offsets: dict[str, dict[int, Committed]] = field(default_factory=dict)
    """None, ever: what every group has."""
    heard_ms: dict[str, int] = field(default_factory=dict)
    topics_version: int = -1
    """Of the topics that `metadata_hash` was made from in this process."""
    assigned_ms: int = -1
    """When the target was last made in this process."""
    assigning: bool = False
    """Whether one is being made in a thread."""
    _subscribed: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        """How far it is."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members named."""
        return frozenset(self._subscribed)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        return topic in self._subscribed

    def member(self, member_id: str) -> ShareMember:
        """Return a member; refuse strangers."""
        found = self.members.get(member_id)
        if found is None:
            raise CoordinatorRefused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def put(self, member: ShareMember) -> None:
        """Take in a member, or what became of it."""
        self.remove_topics(member.member_id)
        self.members[member.member_id] = member
        self._subscribed.update(member.topics)

    def remove(self, member_id: str) -> ShareMember | None:
        """Forget a member, and what it should have."""
        self.remove_topics(member_id)
        self.targets.pop(member_id, None)
        self.heard_ms.pop(member_id, None)
        return self.members.pop(member_id, None)

    def remove_topics(self, member_id: str) -> None:
        """Count the topics of a member no more."""
        known = self.members.get(member_id)
        for topic in known.topics if known is not None else ():
            self._subscribed[topic] -= 1
            if not self._subscribed[topic]:
                del self._subscribed[topic]

    # It commits no offsets.

    def check_committer(
        self, who: Committer, commits: object, api_version: int, *, in_transaction: bool
    ) -> None:
        """Refuse."""
        self._refuse()

    def check_fetcher(self, member_id: str, epoch: int) -> None:
        """Let anybody ask: there is nothing."""

    def check_deletes_offsets(self) -> None:
        """Refuse."""
        self._refuse()

    def idle_since_ms(self, topic: str, kept: Committed) -> int | None:
        """Return None: it never has any offsets."""
        return None

    def _refuse(self) -> NoReturn:
        raise CoordinatorRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group."
        )
