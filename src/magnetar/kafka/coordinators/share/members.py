"""What members of share groups do: join, beat, leave, or fall silent (KIP-932). Pure decisions.

As in consumer groups a heartbeat is everything, but simpler: several members may have a partition, so nobody waits for
anybody, and each member has its target with the next heartbeat.

Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing. ``now_ms`` is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from magnetar.coordination.decision import Action, Decision, Fact
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.bounds import check_topics
from magnetar.kafka.coordinators.consumer.members import INLINE_WORK, Beating
from magnetar.kafka.coordinators.consumer.topics import Topics, hash_of
from magnetar.kafka.coordinators.share.assignor import ShareSubscriber, Sizes, Targets, assign_simple
from magnetar.kafka.coordinators.share.facts import (
    current_fact,
    group_fact,
    member_end,
    member_fact,
    target_epoch_fact,
    target_fact,
)
from magnetar.kafka.coordinators.share.group import NOTHING, ShareGroup, ShareMember
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
_SESSION = "session"


@dataclass(frozen=True, slots=True)
class MakeShareTarget(Action):
    """A target to be made apart from the event loop, for an epoch of a group."""

    group_id: str
    epoch: int
    subscribers: tuple[ShareSubscriber, ...]
    sizes: Sizes

    def make(self) -> Targets:
        """Return who should have what; takes a while."""
        return assign_simple(self.subscribers, self.sizes)


class _Draft:
    """What one decision comes to: facts gather in it."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.actions: list[Action] = []


class ShareGroups:
    """The share groups of one partition. ``settings`` gives those in force for a group."""

    def __init__(self, settings: Callable[[str], ShareSettings], topics: Topics) -> None:
        self.timers = Timers()
        self._settings = settings
        self._topics = topics

    def heartbeat(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ShareGroupHeartbeatResponse]:
        """Take in what a member says; the request was checked, and does not leave."""
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
        draft = _Draft()
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
            self._bump(group, draft)
        self._refresh(group, draft)
        self._retarget(group, settings, now_ms, draft)
        member = self._lead(group, member, draft)
        self._heard(group, member, now_ms)
        full = joins or names is not None or request.member_epoch != known.epoch
        answer = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.group_share_heartbeat_interval_ms,
            assignment=_told(member) if full or member.assigned != known.assigned else None,
        )
        return Decision(tuple(draft.facts), answer, (), tuple(draft.actions))

    def _bump(self, group: ShareGroup, draft: _Draft) -> None:
        """Begin a new epoch; of several reasons in one decision the first does it."""
        fact = group_fact(group)
        if not any(each.key == fact.key for each in draft.facts):
            group.epoch += 1
        draft.facts = [each for each in draft.facts if each.key != fact.key]
        draft.facts.append(group_fact(group))

    def _refresh(self, group: ShareGroup, draft: _Draft) -> None:
        """See whether the topics that are read have changed."""
        version = self._topics.version
        if group.topics_version == version:
            return
        group.topics_version = version
        found = hash_of(self._topics, group.subscribed_topics())
        if found != group.metadata_hash:
            group.metadata_hash = found
            self._bump(group, draft)

    # Targets.

    def _retarget(self, group: ShareGroup, settings: ShareSettings, now_ms: int, draft: _Draft) -> None:
        """Make a new target if the group has a new epoch, and the last one is not too young."""
        if group.epoch <= group.assignment_epoch or group.assigning:
            return
        pause_ms = settings.group_share_assignment_interval_ms
        if group.assigned_ms >= 0 and now_ms - group.assigned_ms < pause_ms:
            return
        group.assigned_ms = now_ms
        made = self._order(group)
        if len(made.subscribers) + sum(made.sizes.values()) > INLINE_WORK:
            group.assigning = True
            draft.actions.append(made)
        else:
            self._set_targets(group, made.epoch, made.make(), draft)

    def _order(self, group: ShareGroup) -> MakeShareTarget:
        ids: dict[str, bytes] = {}
        sizes: dict[bytes, int] = {}
        for name in group.subscribed_topics():
            found = self._topics.find(name)
            if found is not None:
                ids[name] = found.topic_id
                sizes[found.topic_id] = found.partitions
        subscribers = tuple(
            ShareSubscriber(
                member.member_id,
                frozenset(ids[name] for name in member.topics if name in ids),
                group.targets.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        )
        return MakeShareTarget(group.group_id, group.epoch, subscribers, sizes)

    def _set_targets(self, group: ShareGroup, epoch: int, targets: Targets, draft: _Draft) -> None:
        for member_id, target in targets.items():
            if member_id in group.members and group.targets.get(member_id) != target:
                group.targets[member_id] = target
                draft.facts.append(target_fact(group.group_id, member_id, target))
        group.assignment_epoch = epoch
        draft.facts.append(target_epoch_fact(group))

    def target_made(
        self, group: ShareGroup, asked: MakeShareTarget, made: Targets | BaseException
    ) -> Decision[None]:
        """Hear what was made in a thread; members that came meanwhile are for the next one."""
        group.assigning = False
        draft = _Draft()
        if not isinstance(made, BaseException) and asked.epoch > group.assignment_epoch:
            self._set_targets(group, asked.epoch, made, draft)
        return Decision(tuple(draft.facts), None)

    def _lead(self, group: ShareGroup, member: ShareMember, draft: _Draft) -> ShareMember:
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

    # Time, and leaving.

    def _heard(self, group: ShareGroup, member: ShareMember, now_ms: int) -> None:
        group.heard_ms[member.member_id] = now_ms
        timeout_ms = self._settings(group.group_id).group_share_session_timeout_ms
        self.timers.schedule(TimerKey(_SESSION, group.group_id, member.member_id), now_ms + timeout_ms)

    def leave(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest
    ) -> Decision[ShareGroupHeartbeatResponse]:
        """Take a member out."""
        member = group.member(request.member_id)
        draft = _Draft()
        self._remove(group, member, draft)
        answer = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVES)
        return Decision(tuple(draft.facts), answer)

    def _remove(self, group: ShareGroup, member: ShareMember, draft: _Draft) -> None:
        self.timers.cancel(TimerKey(_SESSION, group.group_id, member.member_id))
        group.remove(member.member_id)
        draft.facts += member_end(group.group_id, member.member_id)
        group.topics_version = -1
        self._bump(group, draft)

    def expire(self, due: Iterable[tuple[ShareGroup, str]]) -> Decision[None]:
        """Take out members that were silent for a session."""
        facts: list[Fact] = []
        for group, member_id in due:
            member = group.members.get(member_id)
            if member is not None:
                draft = _Draft()
                self._remove(group, member, draft)
                facts += draft.facts
        return Decision(tuple(facts), None)

    def resume(self, groups: Iterable[ShareGroup], now_ms: int) -> None:
        """After all facts were replayed: give every member a whole session to be heard in."""
        for group in groups:
            for member in group.members.values():
                self._heard(group, member, now_ms)

    def forget(self, group: ShareGroup) -> None:
        """Let go of a group's timers."""
        for member_id in group.members:
            self.timers.cancel(TimerKey(_SESSION, group.group_id, member_id))


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
