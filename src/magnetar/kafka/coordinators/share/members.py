"""The requests of members of share groups: join, heartbeat, leave, or silence (KIP-932). Pure decisions.

As in consumer groups a heartbeat is everything, but simpler: several members may have a partition, so no member waits
for another, and each member has its target with the next heartbeat.

Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing. ``now_ms`` is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from magnetar.coordination.decision import Decision
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.actions import TargetAction
from magnetar.kafka.coordinators.bounds import check_topics
from magnetar.kafka.coordinators.consumer.members import Beating
from magnetar.kafka.coordinators.modern.members import Draft, ModernGroups
from magnetar.kafka.coordinators.share import facts
from magnetar.kafka.coordinators.share.assignor import ShareSubscriber, Sizes, Targets, assign_simple
from magnetar.kafka.coordinators.share.facts import current_fact, member_fact
from magnetar.kafka.coordinators.share.group import NOTHING, Assignment, ShareGroup, ShareMember
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_response import (
    Assignment as ToldAssignment,
)
from magnetar.wire.kafka.messages.share_group_heartbeat_response import (
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

LEAVES = -1


@dataclass(frozen=True, slots=True)
class MakeShareTarget(TargetAction):
    """A target to compute for the members of a share group."""

    kind: ClassVar[str] = "share"
    subscribers: tuple[ShareSubscriber, ...]
    sizes: Sizes

    @property
    def work(self) -> int:
        """The number of members and partitions of the target."""
        return len(self.subscribers) + sum(self.sizes.values())

    def make(self) -> Targets:
        """Return the target of each member; this takes a while."""
        return assign_simple(self.subscribers, self.sizes)


class ShareGroups(ModernGroups[ShareGroup, ShareMember, Assignment]):
    """The share groups of one partition."""

    facts = facts
    nothing = NOTHING

    def _settings(self, group_id: str) -> ShareSettings:
        return self._configs.of(group_id, ShareSettings)

    def session_ms(self, group: ShareGroup, member: ShareMember) -> int:
        """Return how long a member may be silent."""
        return self._settings(group.group_id).group_share_session_timeout_ms

    def assignment_interval_ms(self, group: ShareGroup) -> int:
        """Return the least time between two targets."""
        return self._settings(group.group_id).group_share_assignment_interval_ms

    def subscribed_topics(self, group: ShareGroup) -> frozenset[str]:
        """Return the topics that members named."""
        return group.subscribed_topics()

    def heartbeat(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ShareGroupHeartbeatResponse]:
        """Apply a member's heartbeat; the request was checked, and is not a leave."""
        settings = self._settings(group.group_id)
        joins = request.member_epoch == 0
        before = group.members.get(request.member_id)
        if before is None:
            if not joins:
                group.member(request.member_id)
            if len(group.members) >= settings.group_share_max_size:
                raise CoordinatorRefused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {settings.group_share_max_size} members.",
                )
            known = ShareMember(request.member_id)
        else:
            known = before
            _check_epoch(known, request.member_epoch)
        draft = Draft()
        names = request.subscribed_topic_names
        member = replace(
            known,
            rack_id=known.rack_id if request.rack_id is None else request.rack_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            topics=known.topics if names is None else frozenset(names),
        )
        if member != before:
            draft.facts.append(member_fact(group.group_id, member))
        group.put(member)
        if before is None or member.topics != known.topics:
            group.topics_version = -1
            self.bump(group, draft)
        self.refresh(group, draft)
        self.retarget(group, now_ms, draft)
        member = self._lead(group, member, draft)
        self.heard(group, member, now_ms)
        full = joins or names is not None or request.member_epoch != known.epoch
        answer = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.group_share_heartbeat_interval_ms,
            assignment=_told(member) if full or member.assigned != known.assigned else None,
        )
        return Decision(tuple(draft.facts), answer, (), tuple(draft.actions))

    def order_target(self, group: ShareGroup) -> MakeShareTarget:
        """Return the target to compute for the group's epoch."""
        ids, sizes = self.seen_topics(group)
        subscribers = tuple(
            ShareSubscriber(
                member.member_id,
                frozenset(ids[name] for name in member.topics if name in ids),
                group.targets.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        )
        return MakeShareTarget(group.group_id, group.epoch, subscribers, sizes)

    def _lead(self, group: ShareGroup, member: ShareMember, draft: Draft) -> ShareMember:
        """Return the member with what it should have."""
        target = group.targets.get(member.member_id, NOTHING)
        epoch = group.assignment_epoch
        if member.epoch == epoch and member.assigned == target:
            return member
        previous = member.previous_epoch if member.epoch == epoch else member.epoch
        led = replace(member, epoch=epoch, previous_epoch=previous, assigned=target)
        group.put(led)
        draft.facts.append(current_fact(group.group_id, led))
        return led

    def leave(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest
    ) -> Decision[ShareGroupHeartbeatResponse]:
        """Remove a member."""
        member = group.member(request.member_id)
        draft = Draft()
        self.drop(group, member, draft)
        answer = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVES)
        return Decision(tuple(draft.facts), answer)


def check(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse what can never be granted."""

    def refuse(wrong: bool, why: str) -> None:
        if wrong:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, why)

    check_topics(len(request.subscribed_topic_names or ()))
    refuse(not request.member_id.strip(), "MemberId can't be empty.")
    refuse(not request.group_id.strip(), "GroupId can't be empty.")
    refuse(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    refuse(
        request.member_epoch == 0 and not request.subscribed_topic_names,
        "SubscribedTopicNames must be set in first request.",
    )
    refuse(request.member_epoch < LEAVES, "MemberEpoch is invalid.")


def _told(member: ShareMember) -> ToldAssignment:
    return ToldAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Refuse an epoch that is not the member's; the one before counts, as the answer with the new one may be lost."""
    if epoch == 0 or epoch == member.epoch or (epoch < member.epoch and epoch == member.previous_epoch):
        return
    which = "greater" if epoch > member.epoch else "smaller"
    raise CoordinatorRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {which} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )
