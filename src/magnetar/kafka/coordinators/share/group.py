"""One share group. This is its state; the rules are in other modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NoReturn

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committed, Committer
from magnetar.kafka.coordinators.modern.group import ModernGroup
from magnetar.wire.kafka.errors import ErrorCode

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""
NOTHING: Assignment = {}


class ShareGroupState(StrEnum):
    """The state of a group; the names are Kafka's."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member, as its last heartbeats left it."""

    instance_id: ClassVar[None] = None
    rebalance_timeout_ms: ClassVar[int] = -1
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)


@dataclass(slots=True)
class ShareGroup(ModernGroup[ShareMember, Assignment]):
    """One group. It has members without instance ids, and no offsets."""

    kind: ClassVar[str] = "share"
    _subscribed: Counter[str] = field(default_factory=Counter)

    @property
    def gives_way(self) -> bool:
        """Return False, as in Kafka: its state is stored outside of the group."""
        return False

    @property
    def state(self) -> ShareGroupState:
        """The state of the group."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members named."""
        return frozenset(self._subscribed)

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member reads the topic."""
        return topic in self._subscribed

    def _count(self, member: ShareMember, by: int) -> None:
        for topic in member.topics:
            self._subscribed[topic] += by
            if not self._subscribed[topic]:
                del self._subscribed[topic]

    # It commits no offsets.

    def check_committer(
        self, who: Committer, commits: object, api_version: int, *, in_transaction: bool
    ) -> None:
        """Refuse."""
        self._refuse()

    def check_fetcher(self, member_id: str, epoch: int) -> None:
        """Allow all clients: there are no offsets."""

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
