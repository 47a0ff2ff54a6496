"""`why group G`: the one reason that a consumer group does not move. Facts in, a value out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.admin.reasons import Reason, Why, ago
from magnetar.admin.why_partition import MOVING_MS, PartitionFacts, why_partition
from magnetar.kafka.coordinators.facts import Committed
from magnetar.kafka.coordinators.group import GroupState
from magnetar.kafka.coordinators.views import GroupView, MemberView

Key = tuple[str, int]
_MARKERS = 2
"""Of transactions right before the one that is open: no consumer gets them, so none commits behind them."""
_STORAGE = (Reason.NO_TOPIC, Reason.NO_PARTITION, Reason.DAMAGED, Reason.FLUSH_SLOW)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group as the broker sees it at ``now_ms``; ``partitions`` are those that it committed or was assigned."""

    group: str
    now_ms: int
    loading: bool = False
    offsets_partition: int = 0
    view: GroupView | None = None
    assigned: Mapping[str, tuple[Key, ...]] = field(default_factory=dict)
    """By member id."""
    committed: Mapping[Key, Committed] = field(default_factory=dict)
    partitions: Mapping[Key, PartitionFacts] = field(default_factory=dict)

    @property
    def owners(self) -> dict[Key, MemberView]:
        """Which member each partition is assigned to."""
        members = {member.member_id: member for member in (self.view.members if self.view else ())}
        return {key: members[owner] for owner, keys in self.assigned.items() for key in keys}

    @property
    def elsewhere(self) -> list[PartitionFacts]:
        """Return the partitions that other brokers have, and of which nothing is known here."""
        return [each for _, each in sorted(self.partitions.items()) if each.elsewhere]

    def lag(self, key: Key) -> int | None:
        """How many readable records the group has not committed yet; None before its first commit, or if unknown."""
        committed, partition = self.committed.get(key), self.partitions[key]
        if committed is None or partition.elsewhere:
            return None
        return partition.visible_offset - committed.offset

    @property
    def total_lag(self) -> int:
        """That of all partitions of which it is known."""
        return sum(self.lag(key) or 0 for key in self.committed)


def why_group(facts: GroupFacts) -> Why:
    """Return the one reason: the group as a whole first, then its partitions, the worst first."""
    return (
        _not_known(facts)
        or _rebalancing(facts)
        or _partition_in_trouble(facts)
        or _nobody(facts)
        or _silent_member(facts)
        or _unassigned(facts)
        or _not_committing(facts)
        or _elsewhere(facts)
        or _at_the_end(facts)
    ).with_facts(_shown(facts))


def _not_known(facts: GroupFacts) -> Why | None:
    if facts.loading:
        return Why(
            facts.group,
            Reason.LOADING,
            f"the coordinator is still loading __consumer_offsets-{facts.offsets_partition}, where the group is kept",
            "Wait: members retry by themselves. If it does not end, ask "
            f"'magnetar why __consumer_offsets-{facts.offsets_partition}'.",
        )
    if facts.view is None:
        return Why(
            facts.group,
            Reason.NO_GROUP,
            "no such group: nobody joined under this name, and nothing is committed",
            "See 'magnetar group list'; look at group.id and bootstrap.servers of the consumer.",
        )
    return None


def _rebalancing(facts: GroupFacts) -> Why | None:
    view = facts.view
    assert view is not None
    if view.state not in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        return None
    joining = view.state is GroupState.PREPARING_REBALANCE
    missing = view.missing or ((view.leader,) if not joining else ())
    waited = ago(facts.now_ms - view.since_ms)
    heard = {member.member_id: ago(member.heard_ms_ago) for member in view.members}
    names = ", ".join(
        f"{name} (last heard {heard[name]} ago)" if name in heard else name for name in missing[:3]
    )
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    left = "" if view.time_left_ms is None else f"; it waits at most {ago(view.time_left_ms)} more"
    what = (
        "rejoin" if joining else "take its assignment" if view.leader not in missing else "assign (it leads)"
    )
    whom = f"{names}{more} to {what}" if missing else "more members to join"
    return Why(
        facts.group,
        Reason.WAITS_FOR_JOIN if joining else Reason.WAITS_FOR_SYNC,
        f"a rebalance has waited {waited} for {whom}{left}"
        + (f". It began because of {view.reason}" if view.reason else ""),
        "A consumer rejoins when it polls: look at what that member is busy with (max.poll.interval.ms).",
    )


def _partition_in_trouble(facts: GroupFacts) -> Why | None:
    for _, partition in sorted(facts.partitions.items()):
        why = why_partition(partition)
        if why.reason in _STORAGE:
            return Why(facts.group, why.reason, f"{partition.name}: {why.says}", why.next_step)
    for key, committed in sorted(facts.committed.items()):
        partition = facts.partitions[key]
        if partition.elsewhere:
            continue
        opened = partition.open_transaction
        if opened is not None and 0 <= opened.first_offset - committed.offset <= _MARKERS:
            why = why_partition(partition)
            if why.reason is Reason.OPEN_TRANSACTION:
                return Why(facts.group, why.reason, f"{partition.name}: {why.says}", why.next_step)
        if committed.offset < partition.first_offset:
            return _overtaken(facts.group, partition, committed.offset)
        if committed.offset > partition.next_offset:
            return Why(
                facts.group,
                Reason.AHEAD,
                f"it committed offset {committed.offset} of {partition.name}, and the log ends at "
                f"{partition.next_offset}: the topic was made anew, or data was lost",
                f"magnetar group seek {facts.group} --topic {partition.topic} --to latest (or earliest)",
            )
    return None


def _overtaken(group: str, partition: PartitionFacts, committed: int) -> Why:
    lost = partition.first_offset - committed
    return Why(
        group,
        Reason.OVERTAKEN,
        f"retention overtook it: it committed offset {committed} of {partition.name}, and the log begins at "
        f"{partition.first_offset}; {lost} records are gone unread",
        f"Consumers go on by auto.offset.reset; 'magnetar group seek {group} --topic {partition.topic} "
        "--to earliest' says where. Longer retention.ms keeps it from coming back.",
    )


def _nobody(facts: GroupFacts) -> Why | None:
    view = facts.view
    assert view is not None
    if view.members:
        return None
    latest_ms = max((each.commit_timestamp for each in facts.committed.values()), default=0)
    if facts.now_ms - latest_ms <= MOVING_MS:
        return None  # consumers with manual assignment commit without being members
    lag = facts.total_lag
    since = ago(facts.now_ms - view.since_ms) if view.since_ms >= 0 else "an unknown time"
    if facts.committed and lag <= 0 and not facts.elsewhere:
        return Why(
            facts.group,
            Reason.CAUGHT_UP,
            f"it has read everything; nobody is in the group now, for {since}",
            "Nothing waits for it. Start a consumer with this group.id before there is more to read.",
        )
    return Why(
        facts.group,
        Reason.NO_MEMBERS,
        f"nobody is in the group, for {since}; {lag} records wait to be read"
        + (", beside those of other brokers' partitions" if facts.elsewhere else ""),
        "Start a consumer with this group.id. One with manual assignment commits without being a member.",
    )


def _silent_member(facts: GroupFacts) -> Why | None:
    view = facts.view
    assert view is not None
    silent = [
        member
        for member in view.members
        if not member.waits_for and member.heard_ms_ago > member.session_timeout_ms / 2
    ]
    if not silent:
        return None
    worst = max(silent, key=lambda member: member.heard_ms_ago)
    keys = facts.assigned.get(worst.member_id, ())
    held = ", ".join(f"{topic}-{partition}" for topic, partition in keys[:3]) or "nothing"
    left = "" if worst.session_left_ms is None else f"; it is given up on in {ago(worst.session_left_ms)}"
    return Why(
        facts.group,
        Reason.MEMBER_SILENT,
        f"member {worst.member_id} ({worst.client_id} at {worst.client_host.lstrip('/')}) has sent no heartbeat for "
        f"{ago(worst.heard_ms_ago)} and holds {held}{left}",
        "Look at that process: is it running, stopped, or cut off?",
    )


def _unassigned(facts: GroupFacts) -> Why | None:
    owners = facts.owners
    assert facts.view is not None
    for key in sorted(facts.committed):
        lag = facts.lag(key) or 0
        if key not in owners and lag > 0:
            return Why(
                facts.group,
                Reason.UNASSIGNED,
                f"{facts.partitions[key].name} is assigned to none of its {len(facts.view.members)} members, "
                f"and {lag} records wait there",
                "Look at the members' subscriptions: nobody in the group asks for that topic now.",
            )
    return None


def _not_committing(facts: GroupFacts) -> Why | None:
    stuck = []
    for key, member in facts.owners.items():
        committed, partition = facts.committed.get(key), facts.partitions[key]
        if partition.elsewhere:
            continue
        lag = facts.lag(key)
        behind = partition.visible_offset - partition.first_offset if lag is None else lag
        moved_ms = (
            committed.commit_timestamp
            if committed is not None
            else (facts.view.since_ms if facts.view else 0)
        )
        if behind > 0 and facts.now_ms - moved_ms > MOVING_MS:
            stuck.append((behind, key, member, moved_ms, committed))
    if not stuck:
        return None
    behind, key, member, moved_ms, committed = max(stuck, key=lambda each: (each[0], each[1]))
    partition = facts.partitions[key]
    at = f"since offset {committed.offset}, {ago(facts.now_ms - moved_ms)} ago" if committed else "yet"
    reads = (
        "Fetches wait at the partition's end, so records were read and not committed: look at enable.auto.commit "
        "or the program's own commits."
        if partition.parked
        else "It is busy with what it fetched, or stuck: look at what the program does with its records."
    )
    return Why(
        facts.group,
        Reason.NOT_COMMITTING,
        f"member {member.member_id} ({member.client_id}) is alive (heard {ago(member.heard_ms_ago)} ago) and holds "
        f"{partition.name}, but has committed nothing {at}; {behind} records behind",
        reads,
    )


def _elsewhere(facts: GroupFacts) -> Why | None:
    lag = facts.total_lag
    if lag > 0 or not facts.elsewhere:
        return None
    first, *others = facts.elsewhere
    more = f" ({first.elsewhere}) and {len(others)} more" if others else f" ({first.elsewhere})"
    return Why(
        facts.group,
        Reason.ELSEWHERE,
        "nothing is wrong with it at this broker, which keeps the group, and does not know where partitions of other "
        f"brokers end: {first.name}{more}",
        f"'magnetar group describe {facts.group}' shows the lags; 'magnetar why {first.name}' asks who has one.",
    )


def _at_the_end(facts: GroupFacts) -> Why:
    lag = facts.total_lag
    if lag > 0:
        return Why(
            facts.group,
            Reason.MOVING,
            f"it moves: {lag} records behind, and its last commits are under {ago(MOVING_MS)} old",
            "If the lag grows, add members (at most one per partition works) or make them faster.",
        )
    assert facts.view is not None
    appends = [each.last_append_ms for each in facts.partitions.values() if each.last_append_ms is not None]
    since = f"for {ago(facts.now_ms - max(appends))}" if appends else "so far"
    return Why(
        facts.group,
        Reason.CAUGHT_UP,
        f"it has read everything: nothing new {since}",
        "Nothing is wrong with the group; look at the producers.",
    )


def _shown(facts: GroupFacts) -> dict[str, str]:
    view = facts.view
    if view is None:
        return {}
    shown = {"state": str(view.state), "members": str(len(view.members)), "generation": str(view.generation)}
    owners = facts.owners
    for key in sorted(facts.partitions):
        partition, committed = facts.partitions[key], facts.committed.get(key)
        at = "nothing committed" if committed is None else f"committed {committed.offset}"
        owner = owners[key].client_id if key in owners else "nobody"
        of = partition.elsewhere or f"{partition.first_offset} to {partition.visible_offset}"
        shown[partition.name] = f"{at} of {of}, held by {owner}"
    return shown
