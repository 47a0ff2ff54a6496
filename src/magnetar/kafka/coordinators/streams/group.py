"""One group of the streams protocol (KIP-1071). This is its state; the rules are in other modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import partial
from random import getrandbits
from typing import ClassVar, NamedTuple

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.modern.group import ModernGroup
from magnetar.kafka.coordinators.streams.topology import Configured
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.streams_group_topology_value import StreamsGroupTopologyValue

Tasks = Mapping[str, frozenset[int]]
"""Numbers of tasks by subtopology; a subtopology without tasks is not in it."""
NO_TASKS: Tasks = {}
LEFT_FOR_A_MOMENT = -2
_EPOCHS_SINCE = 9


class StreamsGroupState(StrEnum):
    """The state of a group; the names are Kafka's."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of its topology are missing, or have the wrong number of partitions."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class TasksState(IntEnum):
    """The distance of a member from its target; numbers as Kafka stores them."""

    STABLE = 0
    UNREVOKED_TASKS = 1
    UNRELEASED_TASKS = 2
    UNKNOWN = 127


class TaskPair(NamedTuple):
    """The tasks of one member: those it works on, and those whose state it keeps up to date."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby)

    def overlaps(self, other: TaskPair) -> bool:
        """True if both have some task in the same role."""
        return any(
            not partitions.isdisjoint(theirs.get(subtopology, ()))
            for ours, theirs in ((self.active, other.active), (self.standby, other.standby))
            for subtopology, partitions in ours.items()
        )


NOTHING = TaskPair()


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member, that is one thread of a Streams application, as its last heartbeats left it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """The id of its process; several members may be in one process, which stores a task's state once."""
    endpoint: tuple[str, int] | None = None
    """The address where the application answers queries of its state (interactive queries)."""
    tags: tuple[tuple[str, str], ...] = ()
    epoch: int = 0
    previous_epoch: int = -1
    state: TasksState = TasksState.STABLE
    tasks: TaskPair = NOTHING
    revoking: TaskPair = NOTHING
    """What it has to give up before it may continue."""
    since: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """The epoch in which it got each active task that it has, or has yet to give up."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """True if it has the target of that epoch."""
        return self.state is TasksState.STABLE and self.epoch == epoch


@dataclass(slots=True)
class StreamsGroup(ModernGroup[StreamsMember, TaskPair]):
    """One group, that is one Streams application."""

    kind: ClassVar[str] = "streams"
    validated_topology_epoch: int = -1
    """The epoch of the topology when all its topics were there; -1 while they are not."""
    assignment_configs: tuple[tuple[str, str], ...] = ()
    """The configurations of the last assignment; a change requires a new one."""
    topology: StreamsGroupTopologyValue | None = None
    configured: Configured | None = None
    """The topology with the numbers of partitions of existing topics (`topics_version`); computed in each process."""
    since_ms: int = -1
    """When this process saw its first member."""
    endpoint_epoch: int = field(default_factory=partial(getrandbits, 30))
    """Grows whenever members with endpoints, or their tasks, change; only in this process.

    It begins at a random number: a member knows the number of the previous coordinator, or of an earlier group of this
    name, and would take an equal number for the same endpoints.
    """
    shutdown_by: str = ""
    """The member that requested the shutdown of the whole application."""

    # Queries.

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.validated_topology_epoch != self.topology.epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        done = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return StreamsGroupState.STABLE if done else StreamsGroupState.RECONCILING

    def held_by_others(self, member: StreamsMember) -> Iterator[tuple[StreamsMember, TaskPair]]:
        """Return what each other member has, or has yet to give up."""
        for other in self.members.values():
            if other.member_id != member.member_id:
                yield other, other.tasks
                yield other, other.revoking

    def source_topics(self) -> frozenset[str]:
        """Return the topics that the application reads, repartition topics included."""
        if self.topology is None:
            return frozenset()
        return frozenset(
            name
            for each in self.topology.subtopologies
            for name in (*each.source_topics, *(topic.name for topic in each.repartition_source_topics))
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """True if its members read the topic."""
        return bool(self.members) and topic in self.source_topics()

    # Committed offsets.

    def check_committer(
        self, who: Committer, commits: Sequence[OffsetCommit], api_version: int, *, in_transaction: bool
    ) -> None:
        """Refuse clients that may not commit: non-members while it has members, and members with another epoch.

        An older epoch will do for tasks that the member has had since then.
        """
        if who.is_broker or (
            who.generation < 0 and (self.is_empty or (in_transaction and not who.member_id))
        ):
            return
        member = self.member(who.member_id)
        if api_version < _EPOCHS_SINCE and not in_transaction:
            raise CoordinatorRefused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {_EPOCHS_SINCE} or above must be used by members using the streams "
                "group protocol",
            )
        if who.generation < member.epoch and all(
            self._has_had(member, commit, who.generation) for commit in commits
        ):
            return
        _check_epoch(member, who.generation, in_transaction=in_transaction)

    def _has_had(self, member: StreamsMember, commit: OffsetCommit, epoch: int) -> bool:
        if self.topology is None:
            return False
        for each in self.topology.subtopologies:
            reads = commit.topic in each.source_topics or any(
                topic.name == commit.topic for topic in each.repartition_source_topics
            )
            given = member.since.get(each.subtopology_id, {}).get(commit.partition)
            if reads and given is not None and given <= epoch:
                return True
        return False

    def check_fetcher(self, member_id: str, epoch: int) -> None:
        """Refuse members with another epoch; clients that do not identify themselves may fetch."""
        if epoch >= 0 or member_id:
            _check_epoch(self.member(member_id), epoch)


def _check_epoch(member: StreamsMember, epoch: int, *, in_transaction: bool = False) -> None:
    """Refuse another epoch. Producers do not know STALE_MEMBER_EPOCH: it would end them, not only their transaction."""
    if epoch != member.epoch:
        raise CoordinatorRefused(
            ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
        )
