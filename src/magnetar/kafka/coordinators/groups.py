"""`GroupCoordinator`: the interface for handlers and operators. It finds a group's partition; the deciders decide."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from magnetar.base.audit import note_own
from magnetar.base.background import Background, Repeated
from magnetar.base.printable import printable
from magnetar.cluster.ownership import Owned
from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Action, Assigned, Decision, Marker, Token, Transaction
from magnetar.coordination.following import Following
from magnetar.coordination.log import OffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.kafka.coordinators.actions import GroupAction
from magnetar.kafka.coordinators.committing import Committing
from magnetar.kafka.coordinators.configs import GroupConfigs, SameForAll
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committed, Committer, OffsetCommit
from magnetar.kafka.coordinators.kinds import CONSUMER, KINDS, SHARE, STREAMS, AnyGroup, GroupKind
from magnetar.kafka.coordinators.offsets import TopicPartition
from magnetar.kafka.coordinators.pending import Name
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.telling import Row, Telling
from magnetar.kafka.coordinators.topics import NoTopics, Topics
from magnetar.logs.producers import InvalidProducerEpoch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.consumer.members import Beating
    from magnetar.kafka.coordinators.share.group import ShareGroup
    from magnetar.kafka.coordinators.streams.members import BeatAnswer
    from magnetar.kafka.coordinators.views import GroupView
    from magnetar.wire.kafka.messages.consumer_group_describe_response import DescribedGroup
    from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
    from magnetar.wire.kafka.messages.share_group_describe_response import (
        DescribedGroup as DescribedShareGroup,
    )
    from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from magnetar.wire.kafka.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
    from magnetar.wire.kafka.messages.streams_group_describe_response import (
        DescribedGroup as DescribedStreamsGroup,
    )
    from magnetar.wire.kafka.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

_STARTED_NS = time.time_ns() - time.monotonic_ns()

_log = logging.getLogger(__name__)
T = TypeVar("T")
G = TypeVar("G")
Offsets = Mapping[str, Mapping[int, Committed]]
"""The committed offsets of a group, by topic and partition."""


def steady_clock_ms() -> int:
    """Return the time of day, ms, as it runs since the process began: sessions outlive changes of the system's
    clock.
    """
    return (_STARTED_NS + time.monotonic_ns()) // 1_000_000


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that Kafka stores a group in (Java's string hash)."""
    code = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    # Java's negative numbers; the smallest one has no positive, and Kafka takes 0 for it.
    absolute = code if code < 0x80000000 else 0 if code == 0x80000000 else 0x100000000 - code
    return absolute % partitions


class GroupCoordinator:
    """All groups. ``await start()`` returns immediately; requests for groups of partitions that load are refused.

    Methods raise `CoordinatorRefused` where a request as a whole is refused and its answer has no field of its own for
    that.
    """

    def __init__(
        self,
        log: OffsetsLog,
        settings: GroupSettings,
        clock: Callable[[], int] = steady_clock_ms,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        background: Background | None = None,
        topics: Topics | None = None,
        configs: GroupConfigs | None = None,
    ) -> None:
        self.settings = settings
        self.configs: GroupConfigs = configs or SameForAll(lambda: settings)
        """The configurations of single groups."""
        self.topic = log.topic
        """The one name of the topic that these groups are stored in."""
        self._topics = topics or NoTopics()
        self._background = background or Background()
        self.telling = Telling(self._background)
        """Notifies listeners of durable commits."""
        self.on_joining: list[Callable[[str], None]] = []
        """Called with a group before a member joins it."""
        self._clock = clock
        self._shards = [
            Shard(
                index,
                log,
                lambda: GroupsDecider(settings, new_id, self._topics, self.configs),
                clock,
                self._background,
                self._act,
                on_loaded=self._tell_all,
            )
            for index in range(log.partitions)
        ]
        self._log = log
        self._following = Following(log, self._shards)
        self._cleaning: Repeated | None = None

    def _tell_of_joining(self, group_id: str) -> None:
        for told in self.on_joining:
            told(group_id)

    # Life cycle.

    async def start(self) -> None:
        """Begin to load this broker's partitions in the background."""
        await self.follow_ownership()
        self._cleaning = self._background.repeat(
            "group coordinator expiry",
            lambda: self.settings.offsets_retention_check_interval_ms / 1000,
            self._clean,
        )

    async def follow_ownership(self) -> None:
        """Unload the partitions that another broker owns by now, and begin to load those that have come here."""
        await self._following.follow()

    def _tell_all(self, decider: GroupsDecider) -> None:
        """Notify listeners of what was committed before this start, or on another broker."""
        for group in decider.groups.values():
            for topic, partitions in group.offsets.items():
                rows = [(topic, partition, kept.offset) for partition, kept in partitions.items()]
                self.telling.tell(group.group_id, rows, len(rows))

    async def loaded(self) -> None:
        """Wait until every partition that this broker owns is loaded."""
        await self._following.loaded()

    @property
    def loading(self) -> int:
        """The number of this broker's partitions whose groups cannot be listed yet."""
        return self._following.loading

    async def _clean(self) -> None:
        self.expire_offsets()

    def expire_offsets(self) -> None:
        """Delete offsets that have expired; this also runs regularly."""
        now_ms = self._clock()

        def expired(decider: GroupsDecider) -> Decision[None]:
            before = set(decider.groups)
            made = decider.offsets.expire(now_ms)
            for group in before.difference(decider.groups):
                note_own("expired", "group", printable(group))
            return made

        for shard in self._shards:
            shard.tell_of_what_is_there(expired)

    async def close(self) -> None:
        """Persist what was decided, then dismiss the clients that wait."""
        if self._cleaning is not None:
            await self._cleaning.stop()
        await self._following.close()

    # Members.

    async def join(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """Answer when the group's next generation begins, or immediately with an error."""
        now_ms = self._clock()
        self._tell_of_joining(request.group_id)
        try:
            return await self._ask(
                request.group_id, lambda decider, token: decider.join(request, caller, token, now_ms)
            )
        except CoordinatorRefused as refused:
            return JoinGroupResponse(error_code=refused.code, member_id=request.member_id)

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Answer when the leader has assigned, or immediately with an error."""
        now_ms = self._clock()
        try:
            return await self._ask(
                request.group_id, lambda decider, token: decider.sync(request, token, now_ms)
            )
        except CoordinatorRefused as refused:
            return SyncGroupResponse(error_code=refused.code)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer whether all is well or the member has to rejoin."""
        now_ms = self._clock()
        try:
            return await self._ask(
                request.group_id, lambda decider, token: decider.classic_heartbeat(request, now_ms)
            )
        except CoordinatorRefused as refused:
            # During a load no member is refused; Kafka answers the same.
            loading = refused.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else refused.code)

    async def leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Answer for each member whether it was removed."""
        now_ms = self._clock()
        try:
            return await self._ask(request.group_id, lambda decider, token: decider.leave(request, now_ms))
        except CoordinatorRefused as refused:
            return LeaveGroupResponse(error_code=refused.code)

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Beating
    ) -> ConsumerGroupHeartbeatResponse:
        """Answer with what a member of the consumer protocol may have now (KIP-848), or an error."""
        now_ms = self._clock()
        if request.member_epoch == 0:
            self._tell_of_joining(request.group_id)
        try:
            return await self._ask(
                request.group_id, lambda decider, token: decider.heartbeat(request, caller, now_ms)
            )
        except CoordinatorRefused as refused:
            from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import (
                ConsumerGroupHeartbeatResponse,
            )

            return ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=str(refused))

    async def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Beating
    ) -> ShareGroupHeartbeatResponse:
        """Answer with what a member of a share group fetches from now (KIP-932). Raises `CoordinatorRefused`."""
        now_ms = self._clock()
        return await self._ask(
            request.group_id, lambda decider, token: decider.share_heartbeat(request, caller, now_ms)
        )

    def share_group(self, group_id: str) -> ShareGroup | None:
        """Return a share group, to look at; None if it does not exist. Raises `CoordinatorRefused`."""
        return SHARE.own(self._shard(group_id).check_loaded().groups.get(group_id))

    async def make_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group, created durably if it does not exist. Raises `CoordinatorRefused`."""
        return await self._ask(group_id, lambda decider, token: decider.make_share_group(group_id))

    async def streams_heartbeat(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> BeatAnswer:
        """Answer with the tasks that a member of a streams group may have now (KIP-1071), or an error."""
        now_ms = self._clock()
        if request.member_epoch == 0:
            self._tell_of_joining(request.group_id)
        try:
            return await self._ask(
                request.group_id, lambda decider, token: decider.streams_heartbeat(request, caller, now_ms)
            )
        except CoordinatorRefused as refused:
            from magnetar.kafka.coordinators.streams.members import BeatAnswer
            from magnetar.wire.kafka.messages.streams_group_heartbeat_response import (
                StreamsGroupHeartbeatResponse,
            )

            return BeatAnswer(
                StreamsGroupHeartbeatResponse(error_code=refused.code, error_message=str(refused), status=[])
            )

    def _act(self, action: Action) -> Awaitable[object] | None:
        """Carry out an action, which takes longer than a decision may."""
        if isinstance(action, Assigned):
            return None
        assert isinstance(action, GroupAction)
        return action.carry_out(self._topics)

    # Offsets.

    async def commit(
        self,
        group_id: str,
        who: Committer,
        commits: list[OffsetCommit],
        api_version: int,
        *,
        tell: bool = True,
        transaction: Transaction | None = None,
    ) -> list[ErrorCode]:
        """Store offsets, those of a transaction as pending, durable on return; one code per commit. Raises
        `CoordinatorRefused`.

        ``tell``: notify the listeners that also store this progress; False for progress that comes from them.
        Offsets that are not durable within ``offsets.commit.timeout.ms`` are refused as in Kafka, with a code after
        which clients try again; they may become durable all the same.
        """
        committing = Committing(self._shard(group_id), group_id, who, api_version, self._clock, transaction)
        kept = committing.begin(commits, self._background)
        if tell:
            kept.add_done_callback(partial(self._tell_committed, group_id, commits))
        try:
            async with asyncio.timeout(self.settings.offsets_commit_timeout_ms / 1000):
                return await asyncio.shield(kept)
        except TimeoutError:
            raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None

    def _tell_committed(
        self, group_id: str, commits: Sequence[OffsetCommit], kept: asyncio.Future[list[ErrorCode]]
    ) -> None:
        if kept.cancelled() or kept.exception() is not None:
            return
        told = zip(commits, kept.result(), strict=True)
        rows = ((each.topic, each.partition, each.offset) for each, code in told if code == ErrorCode.NONE)
        self.telling.tell(group_id, rows, len(commits))

    async def end_transaction(self, partition: int, marker: Marker) -> None:
        """Commit or discard a transaction's offsets in one partition, durable on return. Raises
        `CoordinatorRefused`, and `InvalidProducerEpoch` for a marker of an earlier transaction.
        """
        try:
            ended = await self._shards[partition].ask(
                lambda decider, token: decider.offsets.end_transaction(marker)
            )
        except CoordinatorRefused as refused:
            if refused.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                raise InvalidProducerEpoch(str(refused)) from None
            raise
        by_group: dict[str, list[Row]] = {}
        for name, committed in ended.items():
            by_group.setdefault(name.group_id, []).append((name.topic, name.partition, committed.offset))
        for group_id, rows in by_group.items():
            self.telling.tell(group_id, rows, len(rows))

    async def fetch(
        self,
        group_id: str,
        read: Callable[[Offsets, Iterable[Name]], T],
        member_id: str = "",
        epoch: int = -1,
    ) -> T:
        """Return the result of ``read`` for the group's offsets, once none of them can be lost, and for the names under
        which transactions that are still open have committed others. Raises `CoordinatorRefused`.

        ``read`` is called before this waits for anything, and must not return None. A member of a consumer group that
        identifies itself must have its epoch.
        """

        def decide(decider: GroupsDecider, token: Token) -> Decision[T]:
            offsets = decider.offsets.fetch(group_id, member_id, epoch)
            return Decision((), read(offsets, decider.offsets.pending.of_group(group_id)))

        return await self._ask(group_id, decide)

    async def delete_offsets(
        self, group_id: str, partitions: list[TopicPartition], *, tell: bool = True
    ) -> list[ErrorCode]:
        """Delete offsets; one code per partition. Raises `CoordinatorRefused`."""
        codes = await self._ask(group_id, lambda decider, token: decider.offsets.delete(group_id, partitions))
        if tell:
            told = zip(partitions, codes, strict=True)
            rows = [(*each, None) for each, code in told if code == ErrorCode.NONE]
            self.telling.tell(group_id, rows, len(rows))
        return codes

    async def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets. Raises `CoordinatorRefused`."""
        committed = self.committed(group_id)
        await self._ask(group_id, lambda decider, token: decider.offsets.delete_group(group_id))
        for topic, partitions in committed.items():
            rows = [(topic, partition, None) for partition in partitions]
            self.telling.tell(group_id, rows, len(rows))

    async def on_topic_deleted(self, kafka_name: str) -> None:
        """Delete what all groups committed for a topic that is gone."""
        for shard in self._shards:
            shard.tell_of_what_is_there(
                lambda decider: decider.offsets.delete_topic(kafka_name), though_loading=True
            )

    # For operators.

    def list_groups(self) -> list[GroupView]:
        """Return the groups that this broker coordinates. Raises `CoordinatorRefused` while some of these are not
        loaded.
        """
        now_ms = self._clock()
        mine = [shard.look() for shard in self._shards if shard.is_mine]
        return [
            self._view(decider, group, now_ms)
            for decider in mine
            if decider is not None
            for group in decider.groups.values()
        ]

    def loaded_groups(self) -> Iterator[AnyGroup]:
        """Yield the groups themselves, to look at: those of this broker that are loaded."""
        for shard in self._shards:
            decider = shard.made if shard.is_mine else None
            if decider is not None:
                yield from list(decider.groups.values())

    def describe(self, group_id: str) -> GroupView:
        """Return a group. Raises `CoordinatorRefused`."""
        decider = self._shard(group_id).check_loaded()
        group = decider.groups.get(group_id)
        if group is None:
            raise CoordinatorRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self._view(decider, group, self._clock())

    def describe_consumer(self, group_id: str) -> DescribedGroup:
        """Return a group of the consumer protocol, as ConsumerGroupDescribe has it. Raises `CoordinatorRefused`."""
        from magnetar.kafka.coordinators.consumer.views import described

        return described(self._look_at(CONSUMER, group_id), self._topics, self.settings)

    def describe_share(self, group_id: str) -> DescribedShareGroup:
        """Return a share group, as ShareGroupDescribe has it. Raises `CoordinatorRefused`."""
        from magnetar.kafka.coordinators.share.views import described

        return described(self._look_at(SHARE, group_id), self._topics)

    def describe_streams(self, group_id: str) -> DescribedStreamsGroup:
        """Return a group of the streams protocol, as StreamsGroupDescribe has it. Raises `CoordinatorRefused`."""
        from magnetar.kafka.coordinators.streams.views import described

        return described(self._look_at(STREAMS, group_id))

    def _look_at(self, kind: GroupKind[G, Any], group_id: str) -> G:
        return kind.find(self._shard(group_id).check_loaded().groups.get(group_id), group_id)

    def _view(self, decider: GroupsDecider, group: AnyGroup, now_ms: int) -> GroupView:
        from magnetar.kafka.coordinators.views import Viewed

        seen = Viewed(self.configs, self._topics, self.settings, decider.timers_of(group), now_ms)
        return KINDS[group.kind].module.view(group, seen)

    def committed(self, group_id: str) -> dict[str, dict[int, Committed]]:
        """Return a copy of what a group committed. Raises `CoordinatorRefused`."""
        group = self._shard(group_id).check_loaded().groups.get(group_id)
        offsets = {} if group is None else group.offsets
        return {topic: dict(partitions) for topic, partitions in offsets.items()}

    def partition_of(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that the group is stored in."""
        return partition_of(group_id, len(self._shards))

    def owner_of(self, group_id: str) -> Owned | None:
        """Return the broker that coordinates a group; None if no broker does now."""
        return self._log.owner(self.partition_of(group_id))

    # Finding the partition.

    def _shard(self, group_id: str) -> Shard[GroupsDecider]:
        return self._shards[partition_of(group_id, len(self._shards))]

    async def _ask(self, group_id: str, decide: Callable[[GroupsDecider, Token], Decision[T]]) -> T:
        return await self._shard(group_id).ask(decide)
