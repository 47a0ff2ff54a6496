"""One group of the consumer protocol (KIP-848). This is its state; the rules are in other modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import ClassVar, NamedTuple

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.modern.group import ModernGroup
from magnetar.wire.kafka.errors import ErrorCode

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is not in it."""
NOTHING: Assignment = {}
LEFT_FOR_A_MOMENT = -2
"""The epoch of a static member that announced that it will come back."""
_EPOCHS_SINCE = 9
"""The version of OffsetCommit that knows members' epochs."""


class ConsumerGroupState(StrEnum):
    """The state of a group; the names are Kafka's."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The distance of a member from its target; numbers as Kafka stores them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has partitions to give up, and has not reported yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have to give up."""
    UNKNOWN = 127


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression matched when it was last resolved."""

    topics: frozenset[str]
    version: int = -1
    """The version of the topics' names; -1 if another process resolved it."""
    timestamp: int = -1


class ClassicSide(NamedTuple):
    """The additional state of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each, the preferred one first; there is at least one."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member, as its last heartbeats and the last decision about it left it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    topics: frozenset[str] = frozenset()
    regex: str = ""
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    """What it has to give up before it may continue."""
    since: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)
    """The epoch in which it got each partition that it has, or has yet to give up."""
    classic: ClassicSide | None = None
    """Set for a member that speaks the classic protocol."""

    @property
    def held(self) -> Assignment:
        """Return what no other member may have: what it has, and what it has yet to give up."""
        if not self.revoking:
            return self.assigned
        held = dict(self.assigned)
        for topic_id, partitions in self.revoking.items():
            held[topic_id] = held.get(topic_id, frozenset()) | partitions
        return held

    def has_had(self, topic_id: bytes, partition: int, epoch: int) -> bool:
        """True if it has a partition, or has yet to give it up, and had it in an earlier epoch."""
        if not any(partition in held.get(topic_id, ()) for held in (self.assigned, self.revoking)):
            return False
        return self.since.get(topic_id, {}).get(partition, self.epoch) <= epoch

    def is_reconciled_to(self, epoch: int) -> bool:
        """True if it has the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch


@dataclass(slots=True)
class ConsumerGroup(ModernGroup[ConsumerMember, Assignment]):
    """One group; the counts over all members are needed for each heartbeat."""

    kind: ClassVar[str] = "consumer"
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    resolving: bool = False
    """Whether regular expressions are being resolved."""
    _held: dict[bytes, dict[int, str]] = field(default_factory=dict)
    """The member that has a partition, or has yet to give it up."""
    _subscribed: Counter[str] = field(default_factory=Counter)
    _by_regex: Counter[str] = field(default_factory=Counter)
    _assignors: Counter[str] = field(default_factory=Counter)
    _classic: int = 0
    """How many members speak the classic protocol."""
    _protocols: Counter[str] = field(default_factory=Counter)
    """The protocols that those support."""
    _at_epoch: Counter[int] = field(default_factory=Counter)
    """How many stable members have each epoch."""

    # Queries.

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        done = self._at_epoch[self.assignment_epoch] == len(self.members)
        return ConsumerGroupState.STABLE if done else ConsumerGroupState.RECONCILING

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members named, and those that their expressions matched."""
        found = set(self._subscribed)
        for regex in self._by_regex:
            found |= self.regexes[regex].topics if regex in self.regexes else frozenset()
        return frozenset(found)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that one member reads."""
        if not member.regex or member.regex not in self.regexes:
            return member.topics
        return member.topics | self.regexes[member.regex].topics

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member reads the topic."""
        return topic in self._subscribed or any(
            topic in self.regexes[regex].topics for regex in self._by_regex if regex in self.regexes
        )

    def is_held(self, topic_id: bytes, partition: int) -> bool:
        """True if a member has a partition, or has yet to give it up."""
        return partition in self._held.get(topic_id, ())

    def uses_regex(self, regex: str) -> bool:
        """True if a member uses the expression."""
        return regex in self._by_regex

    def used_regexes(self) -> Iterable[str]:
        """Return the expressions of all members."""
        return self._by_regex.keys()

    def supports_classic(self, names: Iterable[str]) -> bool:
        """True if one of these protocols is common to all classic members."""
        return any(self._protocols[name] == self._classic for name in names)

    def are_others_classic(self, leaving: Collection[str]) -> bool:
        """True if there are members left without these, and all of them speak the classic protocol."""
        left = len(self.members) - len(leaving)
        classic = sum(self.members[each].classic is not None for each in leaving)
        return left > 0 and self._classic - classic == left

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """True if another member has something that a member should have."""
        return any(
            self.is_held(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, NOTHING).items()
            for partition in partitions - member.assigned.get(topic_id, frozenset())
        )

    def assignor(self, default: str) -> str:
        """Return the assignor that most members ask for, else the default."""
        most = self._assignors.most_common(1)
        return most[0][0] if most else default

    # Committed offsets.

    def check_committer(
        self, who: Committer, commits: Sequence[OffsetCommit], api_version: int, *, in_transaction: bool
    ) -> None:
        """Refuse clients that may not commit: non-members while it has members, and members with another epoch.

        An older epoch will do for partitions that the member has had since then (KIP-1251): it may be committing
        while it is given others.
        """
        if who.is_broker or (
            who.generation < 0 and (self.is_empty or (in_transaction and not who.member_id))
        ):
            return
        member = self.member(who.member_id)
        if member.classic is None and api_version < _EPOCHS_SINCE and not in_transaction:
            raise CoordinatorRefused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {_EPOCHS_SINCE} or above must be used by members using the modern "
                "group protocol",
            )
        if who.generation >= member.epoch or not all(
            member.has_had(commit.topic_id, commit.partition, who.generation) for commit in commits
        ):
            _check_epoch(member, who.generation, in_transaction=in_transaction)

    def check_fetcher(self, member_id: str, epoch: int) -> None:
        """Refuse members with another epoch; clients that do not identify themselves may fetch."""
        if epoch >= 0 or member_id:
            _check_epoch(self.member(member_id), epoch)

    # Changing.

    def _count(self, member: ConsumerMember, by: int) -> None:
        self._add(self._subscribed, member.topics, by)
        self._add(self._by_regex, (member.regex,) if member.regex else (), by)
        self._add(self._assignors, (member.server_assignor,) if member.server_assignor else (), by)
        if member.state is MemberState.STABLE:
            self._add(self._at_epoch, (member.epoch,), by)
        if member.classic is not None:
            self._classic += by
            self._add(self._protocols, {name for name, _ in member.classic.protocols}, by)
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                self._hold(topic_id, partitions, member.member_id if by > 0 else None, member.member_id)

    def _hold(self, topic_id: bytes, partitions: Iterable[int], holder: str | None, before: str) -> None:
        holders = self._held.setdefault(topic_id, {})
        for partition in partitions:
            if holder is not None:
                holders[partition] = holder
            elif holders.get(partition) == before:  # else another member has it already
                del holders[partition]
        if not holders:
            del self._held[topic_id]

    @staticmethod
    def _add(counter: Counter, keys: Iterable, by: int) -> None:  # type: ignore[type-arg]
        for key in keys:
            counter[key] += by
            if not counter[key]:
                del counter[key]


def _check_epoch(member: ConsumerMember, epoch: int, *, in_transaction: bool = False) -> None:
    """Refuse another epoch. Producers do not know STALE_MEMBER_EPOCH: it would end them, not only their transaction."""
    if epoch != member.epoch:
        raise CoordinatorRefused(
            ErrorCode.ILLEGAL_GENERATION
            if in_transaction or member.classic is not None
            else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )
