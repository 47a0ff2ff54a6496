"""One classic group: its members, its state, and its committed offsets. The rules are in other modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from magnetar.coordination.decision import Token
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import MOVED_BY_PULSAR, Committed, Committer, OffsetCommit
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.group_metadata_value import GroupMetadataValue, MemberMetadata

CONSUMER = "consumer"
"""The protocol type of consumers, the only one whose metadata the coordinator looks into."""


class GroupState(StrEnum):
    """The state of a group; the names are Kafka's."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


Protocols = tuple[tuple[str, bytes], ...]
"""The protocols of a member: name and metadata, the preferred one first."""


@dataclass(slots=True)
class Member:
    """One member. ``joining`` and ``syncing`` stand for its request that waits, if one does."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    joining: Token | None = None
    syncing: Token | None = None
    is_new: bool = False
    heard_ms: int = -1

    @property
    def is_static(self) -> bool:
        """True if it retains its place over restarts (KIP-345)."""
        return self.instance_id is not None

    @property
    def may_be_silent(self) -> bool:
        """True if it waits for an answer, so that it sends nothing; new members are given up on all the same."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """Return its metadata for a protocol; nothing if it does not know the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class InitialDelay:
    """The time that a group that was empty may still wait for more members."""

    current_ms: int
    remaining_ms: int


@dataclass(slots=True)
class ClassicGroup:
    """One group; members and topics keep the order in which they came."""

    kind: ClassVar[str] = "classic"
    group_id: str
    state: GroupState = GroupState.EMPTY
    previous: GroupState = GroupState.EMPTY
    since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """The member id of each instance id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Member ids that were assigned (KIP-394) and have not joined yet."""
    unsynced: dict[str, None] = field(default_factory=dict)
    """Members of this generation that have not requested their assignment yet."""
    assigning: dict[str, bytes] | None = None
    """The leader's assignment, while it is not durable yet."""
    awaited: InitialDelay | None = None
    grew: bool = False
    """Whether a member joined since the initial delay was last prolonged."""
    reason: str = ""
    """Why it last began to rebalance."""
    subscribed: frozenset[str] | None = None
    """The topics its consumers read; None if that cannot be known."""
    offsets: dict[str, dict[int, Committed]] = field(default_factory=dict)
    stored: GroupMetadataValue | None = None
    """The last fact about the group itself."""

    # Queries.

    @property
    def is_consumer(self) -> bool:
        """True if its members are consumers, which assign topics to each other."""
        return self.protocol_type == CONSUMER

    @property
    def has_all_joined(self) -> bool:
        """True if no member is missing from the rebalance under way."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def joining_count(self) -> int:
        """The number of members that wait for the rebalance."""
        return sum(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time any member may take to rejoin."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member reads the topic, or for consumers, if that cannot be known."""
        return self.is_consumer if self.subscribed is None else topic in self.subscribed

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """True if a member with these protocols could join: one of them is common to all others."""
        wanted = set(names)
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and wanted)
        return self.protocol_type == protocol_type and not wanted.isdisjoint(self._common(wanted))

    def _common(self, names: Iterable[str]) -> set[str]:
        common = set(names)
        for member in self.members.values():
            common.intersection_update(name for name, _ in member.protocols)
        return common

    def choose_protocol(self) -> str:
        """Return the common protocol that most members prefer."""
        first = next(iter(self.members.values()))
        common = self._common(name for name, _ in first.protocols)
        assert common, f"group {self.group_id} took in members without a common protocol"
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member of a request; refuse unknown members and those whose place was taken."""
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise CoordinatorRefused(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    @property
    def is_empty(self) -> bool:
        """True if it has no members."""
        return self.state is GroupState.EMPTY

    @property
    def gives_way(self) -> bool:
        """True if a classic group may take its name, and if it ends once it has no offsets left."""
        return self.is_empty

    @property
    def yields(self) -> bool:
        """True if a group of a modern kind takes its name, and its offsets, with the first member."""
        return self.is_empty

    @property
    def is_nothing(self) -> bool:
        """True if nothing is left of it: it only ever stood for its offsets."""
        return self.stored is None and not self.offsets

    @property
    def awaits_members(self) -> bool:
        """True if a member is announced that has not joined yet (KIP-394)."""
        return bool(self.pending)

    def live_facts(self) -> int:
        """Return how many facts make it what it is, without its offsets."""
        return self.stored is not None

    @property
    def is_shadow(self) -> bool:
        """True if it only stands for the progress of a linked subscription: no Kafka client knows of it."""
        return (
            self.is_empty
            and self.stored is None
            and bool(self.offsets)
            and all(
                kept.metadata == MOVED_BY_PULSAR for rows in self.offsets.values() for kept in rows.values()
            )
        )

    def check_committer(
        self, who: Committer, commits: Sequence[OffsetCommit], api_version: int, *, in_transaction: bool
    ) -> None:
        """Refuse clients that may not commit: non-members while it has members, and members of another generation."""
        if who.is_broker or (who.generation < 0 and self.is_empty):
            # Admin clients, consumers that assign partitions themselves, and the broker.
            return
        if who.generation < 0 and not who.member_id and who.instance_id is None:
            if in_transaction:  # of a producer that does not know its consumer's group
                return
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        self.check_member(who.member_id, who.instance_id)
        if who.generation != self.generation:
            raise CoordinatorRefused(ErrorCode.ILLEGAL_GENERATION)
        if self.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
            raise CoordinatorRefused(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetcher(self, member_id: str, epoch: int) -> None:
        """Allow all clients to fetch offsets: generations are not checked."""

    def check_deletes_offsets(self) -> None:
        """Refuse while it has members whose topics are unknown."""
        if not self.is_empty and not self.is_consumer:
            raise CoordinatorRefused(ErrorCode.NON_EMPTY_GROUP)

    def idle_since_ms(self, topic: str, kept: Committed) -> int | None:
        """Return since when no member reads a topic that it committed an offset for (KIP-211); None while one may."""
        if self.is_subscribed_to(topic):
            return None
        if self.protocol_type is None:
            return kept.commit_timestamp
        if self.is_empty:
            return self.since_ms if self.since_ms >= 0 else kept.commit_timestamp
        if self.state is GroupState.STABLE and self.subscribed is not None:
            return kept.commit_timestamp
        return None

    # Changing.

    def become(self, state: GroupState, now_ms: int) -> None:
        """Go to the next state."""
        self.previous, self.state, self.since_ms = self.state, state, now_ms

    def add(self, member: Member) -> None:
        """Add a member; the first one leads."""
        assert member.instance_id not in self.static, "a static member takes its old place instead"
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not; if it led, the next one does."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)

    def replace(self, old: Member, member_id: str) -> Member:
        """Assign a static member a new id; its place, its assignment and its lead go with it."""
        assert old.instance_id is not None
        self.members = {
            (member_id if known is old else known.member_id): known for known in self.members.values()
        }
        if self.leader == old.member_id:
            self.leader = member_id
        if old.member_id in self.unsynced:
            del self.unsynced[old.member_id]
            self.unsynced[member_id] = None
        self.static[old.instance_id] = member_id
        old.member_id = member_id
        return old

    def elect(self) -> bool:
        """Make sure that the leader takes part in the rebalance; return False if no member does."""
        if self.leader is not None and self.members[self.leader].joining is None:
            joined = (member.member_id for member in self.members.values() if member.joining is not None)
            self.leader = next(joined, None) or self.leader
        return self.leader is not None and self.members[self.leader].joining is not None

    def next_generation(self, now_ms: int) -> None:
        """Begin a new generation with the current members."""
        self.generation += 1
        self.protocol = self.choose_protocol() if self.members else None
        self.subscribed = self.find_subscribed()
        self.unsynced.clear()
        self.become(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def find_subscribed(self) -> frozenset[str] | None:
        """Return the topics from the members' metadata, None where it cannot be read."""
        if not self.is_consumer or (self.members and self.protocol is None):
            return None
        topics: set[str] = set()
        try:
            for member in self.members.values():
                # Two bytes of version; every later version begins with the fields of version 0.
                subscription = ConsumerProtocolSubscription.decode(member.metadata(self.protocol)[2:], 0)
                topics.update(subscription.topics)
        except WireError:
            return None
        return frozenset(topics)

    # Facts.

    def value(
        self, assignments: dict[str, bytes] | None = None, since_ms: int | None = None
    ) -> GroupMetadataValue:
        """Return the group as a fact, as it is or as it will be with other assignments."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=self.since_ms if since_ms is None else since_ms,
            members=[
                self._member_value(
                    member, member.assignment if assignments is None else assignments[member.member_id]
                )
                for member in self.members.values()
            ],
        )

    def _member_value(self, member: Member, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(self.protocol),
            assignment=assignment,
        )


def from_value(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a fact; its members have yet to send a request."""
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    group = ClassicGroup(
        group_id,
        state=state,
        since_ms=value.current_state_timestamp,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader if any(member.member_id == value.leader for member in value.members) else None,
    )
    for member in value.members:
        group.add(_from_member_value(member, value))
    group.subscribed = group.find_subscribed()
    group.stored = group.value()
    return group


def _from_member_value(member: MemberMetadata, value: GroupMetadataValue) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout,
        rebalance_timeout_ms=member.rebalance_timeout
        if member.rebalance_timeout >= 0
        else member.session_timeout,
        protocol_type=value.protocol_type,
        protocols=((value.protocol or "", bytes(member.subscription)),),
        assignment=bytes(member.assignment),
    )
