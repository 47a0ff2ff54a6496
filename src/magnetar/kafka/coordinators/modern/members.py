"""The rules that all modern groups share: epochs, targets, sessions, leaving. Pure decisions.

A change of members, subscriptions or topics begins a new epoch of the group; a target is made for it, in a thread if
that is much work; and each member is led to its target with its own heartbeats. The content of a heartbeat and of its
answer differ by kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from magnetar.coordination.decision import Action, Decision, Fact, Release
from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.actions import GroupAction, TargetAction
from magnetar.kafka.coordinators.modern.group import ModernGroup, ModernMember
from magnetar.kafka.coordinators.modern.surroundings import Surroundings
from magnetar.kafka.coordinators.topics import hash_of

INLINE_WORK = 2_000
"""Members and partitions for which a target is made on the event loop, a millisecond or two; for more in a thread."""
_REVOKE, _SESSION = "revoke", "session"
G = TypeVar("G", bound=ModernGroup[Any, Any])
M = TypeVar("M", bound=ModernMember)
T = TypeVar("T")
Answer = TypeVar("Answer")


class Draft:
    """A decision under construction, which collects facts, answers and actions."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.released: list[Release] = []
        self.actions: list[Action] = []
        self.replaced: Any = None
        """The static member whose place was taken by it, if one was."""

    def decide(self, answer: Answer | None) -> Decision[Answer]:
        """Return the decision."""
        return Decision(tuple(self.facts), answer, tuple(self.released), tuple(self.actions))


class Records(Protocol):
    """The records of one kind of groups: its module ``facts``."""

    @property
    def group_fact(self) -> Callable[[Any], Fact]: ...
    @property
    def member_fact(self) -> Callable[[str, Any], Fact]: ...
    @property
    def current_fact(self) -> Callable[[str, Any], Fact]: ...
    @property
    def target_fact(self) -> Callable[[str, str, Any], Fact]: ...
    @property
    def target_epoch_fact(self) -> Callable[[Any], Fact]: ...
    @property
    def member_end(self) -> Callable[[str, str], tuple[Fact, ...]]: ...


class ModernGroups(Generic[G, M, T]):
    """The groups of one kind in one partition; each kind implements the parts that are marked as its own."""

    facts: Records
    """The module of this kind's records."""
    nothing: T
    """The target of a member that should have nothing."""
    timed: tuple[str, ...] = (_SESSION,)
    """The kinds of a member's deadlines."""

    def __init__(self, around: Surroundings) -> None:
        self.timers = Timers()
        self._configs = around.configs
        self._topics = around.topics
        self._new_id = around.new_id

    # Each kind's own.

    def session_ms(self, group: G, member: M) -> int:
        """Return how long a member may be silent."""
        raise NotImplementedError

    def assignment_interval_ms(self, group: G) -> int:
        """Return the least time between two targets."""
        raise NotImplementedError

    def order_target(self, group: G) -> TargetAction:
        """Return the target to compute for the group's epoch."""
        raise NotImplementedError

    def subscribed_topics(self, group: G) -> Collection[str]:
        """Return the topics that the group reads."""
        raise NotImplementedError

    def has_to_revoke(self, member: M) -> bool:
        """True if a member has something to give up, for which it has its rebalance timeout."""
        return False

    # Epochs.

    def bump(self, group: G, draft: Draft) -> None:
        """Begin a new epoch, once in a decision, however many reasons there are."""
        fact = self.facts.group_fact(group)
        if not any(each.key == fact.key for each in draft.facts):
            group.epoch += 1
        draft.facts = [each for each in draft.facts if each.key != fact.key]
        draft.facts.append(self.facts.group_fact(group))

    def refresh(self, group: G, draft: Draft) -> None:
        """Begin a new epoch if the topics that the group reads have changed."""
        version = self._topics.version
        if group.topics_version == version:
            return
        group.topics_version = version
        digest = hash_of(self._topics, self.subscribed_topics(group))
        if digest != group.metadata_hash:
            group.metadata_hash = digest
            self.bump(group, draft)

    # Targets.

    def retarget(self, group: G, now_ms: int, draft: Draft) -> None:
        """Make a new target if the group has a new epoch, and the last one is not too young."""
        if group.epoch <= group.assignment_epoch or group.assigning:
            return
        if group.assigned_ms >= 0 and now_ms - group.assigned_ms < self.assignment_interval_ms(group):
            return
        group.assigned_ms = now_ms
        order = self.order_target(group)
        if order.work > INLINE_WORK:
            group.assigning = True
            draft.actions.append(order)
        else:
            self.set_targets(group, order.epoch, order.make(), draft)

    def seen_topics(self, group: G) -> tuple[dict[str, bytes], dict[bytes, int]]:
        """Return the ids of the topics that the group reads, by name, and their numbers of partitions, by id."""
        ids: dict[str, bytes] = {}
        sizes: dict[bytes, int] = {}
        for name in self.subscribed_topics(group):
            topic = self._topics.find(name)
            if topic is not None:
                ids[name] = topic.topic_id
                sizes[topic.topic_id] = topic.partitions
        return ids, sizes

    def set_targets(self, group: G, epoch: int, targets: Mapping[str, T], draft: Draft) -> None:
        """Store the target of each member from an epoch on."""
        for member_id, target in targets.items():
            if member_id in group.members and group.targets.get(member_id) != target:
                group.targets[member_id] = target
                draft.facts.append(self.facts.target_fact(group.group_id, member_id, target))
        group.assignment_epoch = epoch
        draft.facts.append(self.facts.target_epoch_fact(group))

    def done(self, group: G, action: GroupAction, result: object, now_ms: int) -> Decision[None]:
        """Apply a target that was made in a thread; members that came meanwhile are for the next one."""
        assert isinstance(action, TargetAction)
        assert isinstance(result, Mapping | Exception)
        group.assigning = False
        draft = Draft()
        if not isinstance(result, Exception) and action.epoch > group.assignment_epoch:
            self.set_targets(group, action.epoch, result, draft)
        return Decision(tuple(draft.facts), None)

    # Members.

    def replace_member(self, group: G, known: M, member_id: str, draft: Draft) -> M:
        """Replace a static member by the one that came back with its instance id."""
        draft.replaced = known
        target = group.targets.get(known.member_id, self.nothing)
        self._cancel(group, known.member_id)
        group.remove(known.member_id)
        draft.facts += self.facts.member_end(group.group_id, known.member_id)
        member: M = replace(known, member_id=member_id, epoch=0, previous_epoch=0)  # type: ignore[type-var]
        group.put(member)
        group.targets[member_id] = target
        draft.facts.append(self.facts.member_fact(group.group_id, member))
        draft.facts.append(self.facts.target_fact(group.group_id, member_id, target))
        draft.facts.append(self.facts.current_fact(group.group_id, member))
        return member

    def move(self, group: G, member: M, now_ms: int, draft: Draft) -> None:
        """Store a member's step towards its target; what it has to give up has a deadline."""
        group.put(member)
        draft.facts.append(self.facts.current_fact(group.group_id, member))
        if self.has_to_revoke(member):
            self._time_revocation(group, member, now_ms)
        else:
            self.timers.cancel(TimerKey(_REVOKE, group.group_id, member.member_id))

    def _time_revocation(self, group: G, member: M, now_ms: int) -> None:
        key = TimerKey(_REVOKE, group.group_id, member.member_id)
        self.timers.schedule(key, now_ms + max(member.rebalance_timeout_ms, 0))

    def leave_for_a_moment(self, group: G, member: M, draft: Draft) -> None:
        """Store that a static member will be back: it retains its place until its session ends."""
        group.put(member)
        draft.facts.append(self.facts.current_fact(group.group_id, member))
        self.timers.cancel(TimerKey(_REVOKE, group.group_id, member.member_id))

    def heard(self, group: G, member: M, now_ms: int) -> None:
        """Begin a member's session again: a request of it has just come."""
        group.heard_ms[member.member_id] = now_ms
        key = TimerKey(_SESSION, group.group_id, member.member_id)
        self.timers.schedule(key, now_ms + self.session_ms(group, member))

    def drop(self, group: G, member: M, draft: Draft) -> None:
        """Remove a member; a new epoch begins."""
        self._cancel(group, member.member_id)
        group.remove(member.member_id)
        draft.facts += self.facts.member_end(group.group_id, member.member_id)
        self.dropped(group, member, draft)
        self.bump(group, draft)

    def dropped(self, group: G, member: M, draft: Draft) -> None:
        """Remove from the group what only this member brought; the group may read fewer topics then."""
        group.topics_version = -1

    def _cancel(self, group: G, member_id: str) -> None:
        for kind in self.timed:
            self.timers.cancel(TimerKey(kind, group.group_id, member_id))

    # Time.

    def expire(self, group: G, member_id: str, now_ms: int) -> Decision[None]:
        """Remove a member that was silent for too long, or did not give up in time what it had to."""
        draft = Draft()
        member = group.members.get(member_id)
        if member is not None:
            self.drop(group, member, draft)
        return draft.decide(None)

    def resume(self, groups: Iterable[G], now_ms: int) -> None:
        """Begin every member's session, after all facts were replayed."""
        for group in groups:
            for member in group.members.values():
                self.heard(group, member, now_ms)
                if self.has_to_revoke(member):
                    self._time_revocation(group, member, now_ms)

    def forget(self, group: G) -> None:
        """Cancel a group's deadlines."""
        for member_id in group.members:
            self._cancel(group, member_id)
