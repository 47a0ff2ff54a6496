"""A stage for scenarios: one decider, a clock that only moves when told to, and all facts kept for a restart."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Action, Decision, Fact, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committer, GroupFact, OffsetCommit, OffsetFact, read_fact
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.views import GroupView, view
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
T0 = 1_000_000


def span_ms(text: str) -> int:
    """Read ``300ms``, ``3s``, ``5m``, ``7d``."""
    unit = next(unit for unit in ("ms", "s", "m", "h", "d") if text.endswith(unit))
    return int(text.removesuffix(unit)) * _UNITS[unit]


def subscription(topics: list[str]) -> bytes:
    """Return what a consumer says about itself when it joins."""
    return b"\0\0" + ConsumerProtocolSubscription(topics=topics).encode(0)


class Stage:
    """Runs one scenario's commands and gives what happened as text."""

    def __init__(self) -> None:
        self.settings = GroupSettings()
        self.now_ms = T0
        self.ids = 0
        self.facts: list[Stated] = []
        self.slow: list[Action] | None = None
        """What a slow disk has not kept yet; None where the disk is quick."""
        self.decider = self._new_decider()

    def _new_decider(self) -> GroupsDecider:
        return GroupsDecider(self.settings, self._new_id)

    def _new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def run(self, command: str) -> str:
        """Do what one line says: a verb, plain words, and options as ``name=value``."""
        verb, *words = shlex.split(command)
        plain = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        act = getattr(self, "do_" + verb.replace("-", "_"))
        try:
            lines = act(plain, options)
        except CoordinatorRefused as refused:
            lines = [refused.code.name]
        return "\n".join(lines)

    def do_settings(self, plain: list[str], options: dict[str, str]) -> list[str]:
        values = {name.replace(".", "_"): int(value) for name, value in options.items()}
        self.settings = GroupSettings(**values)
        self.decider = self._new_decider()
        return []

    def do_join(self, plain: list[str], options: dict[str, str]) -> list[str]:
        group_id, token = plain
        topics = [topic for topic in options.get("topics", "t").split(",") if topic]
        protocols = [name for name in options.get("protocols", "range").split(",") if name]
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=span_ms(options.get("session", "10s")),
            rebalance_timeout_ms=span_ms(options.get("rebalance", "60s")),
            member_id=options.get("member", ""),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=subscription(topics)) for name in protocols
            ],
            reason=options.get("reason"),
        )
        caller = Caller(options.get("client", "c"), "/127.0.0.1", int(options.get("v", "9")))
        return self._happened(self.decider.classic.join(request, caller, token, self.now_ms), "waits")

    def do_sync(self, plain: list[str], options: dict[str, str]) -> list[str]:
        group_id, token = plain
        parts = [part.split(":") for part in options.get("assign", "").split(",") if part]
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=int(options["gen"]),
            member_id=options["member"],
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type"),
            protocol_name=options.get("protocol"),
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a.encode()) for m, a in parts],
        )
        return self._happened(self.decider.classic.sync(request, token, self.now_ms), "waits")

    def do_heartbeat(self, plain: list[str], options: dict[str, str]) -> list[str]:
        request = HeartbeatRequest(
            group_id=plain[0],
            generation_id=int(options["gen"]),
            member_id=options["member"],
            group_instance_id=options.get("instance"),
        )
        return self._happened(self.decider.classic.heartbeat(request, self.now_ms))

    def do_leave(self, plain: list[str], options: dict[str, str]) -> list[str]:
        members = [
            MemberIdentity(member_id=member, reason=options.get("reason"))
            for member in options.get("members", "").split(",")
            if member
        ]
        members += [
            MemberIdentity(group_instance_id=instance)
            for instance in options.get("instances", "").split(",")
            if instance
        ]
        return self._happened(
            self.decider.classic.leave(LeaveGroupRequest(group_id=plain[0], members=members), self.now_ms)
        )

    def do_commit(self, plain: list[str], options: dict[str, str]) -> list[str]:
        who = Committer(
            options.get("member", ""),
            options.get("instance"),
            int(options.get("gen", "-1")),
            span_ms(options["keep"]) if "keep" in options else -1,
        )
        group_id, *offsets = plain
        commits = []
        for text in offsets:
            topic, partition, offset = text.split(":")
            metadata = "x" * int(options.get("metadata", "0"))
            commits.append(OffsetCommit(topic, b"t" * 16, int(partition), int(offset), -1, metadata))
        version = int(options.get("v", "9"))
        return self._happened(self.decider.offsets.commit(group_id, who, commits, version, self.now_ms))

    def do_fetch(self, plain: list[str], options: dict[str, str]) -> list[str]:
        offsets = self.decider.offsets.fetch(plain[0])
        return [
            f"{topic}:{partition} {committed.offset}"
            for topic, partitions in offsets.items()
            for partition, committed in partitions.items()
        ] or ["nothing"]

    def do_delete_offsets(self, plain: list[str], options: dict[str, str]) -> list[str]:
        group_id, *names = plain
        wanted = [(name.split(":")[0], int(name.split(":")[1])) for name in names]
        return self._happened(self.decider.offsets.delete(group_id, wanted))

    def do_delete_group(self, plain: list[str], options: dict[str, str]) -> list[str]:
        return self._happened(self.decider.offsets.delete_group(plain[0]))

    def do_delete_topic(self, plain: list[str], options: dict[str, str]) -> list[str]:
        return self._happened(self.decider.offsets.delete_topic(plain[0]))

    def do_expire_offsets(self, plain: list[str], options: dict[str, str]) -> list[str]:
        return self._happened(self.decider.offsets.expire(self.now_ms))

    def do_advance(self, plain: list[str], options: dict[str, str]) -> list[str]:
        """Let time pass, and do what falls due when it falls due."""
        end_ms = self.now_ms + span_ms(plain[0])
        lines: list[str] = []
        while (wake_ms := self.decider.classic.timers.wake_ms()) is not None and wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            happened = self._happened(self.decider.classic.expire(self.now_ms))
            if happened != ["ok"]:
                lines += [f"+{self.now_ms - (end_ms - span_ms(plain[0]))}ms", *happened[1:]]
        self.now_ms = end_ms
        return lines or ["nothing"]

    def do_disk(self, plain: list[str], options: dict[str, str]) -> list[str]:
        """``slow``: nothing becomes durable; ``done``: all that was decided has."""
        late, self.slow = self.slow or [], [] if plain == ["slow"] else None
        return self._kept(late) or ["ok"]

    def do_restart(self, plain: list[str], options: dict[str, str]) -> list[str]:
        """Lose everything but the facts."""
        self.decider = self._new_decider()
        for fact in self.facts:
            self.decider.replay(fact)
        return self._happened(self.decider.resume(self.now_ms))

    def do_show(self, plain: list[str], options: dict[str, str]) -> list[str]:
        group = self.decider.groups.get(plain[0])
        if group is None:
            return ["no such group"]
        return show(view(group, self.decider.classic.timers, self.now_ms))

    def _happened(self, decision: Decision[object], nothing: str = "ok") -> list[str]:
        self.facts += decision.facts
        lines = [nothing if decision.answer is None else tell(decision.answer)]
        lines += [f"{token}: {tell(answer)}" for token, answer in decision.released]
        if self.slow is None:
            lines += self._kept(decision.actions)
        else:
            self.slow += decision.actions
        lines += [f"fact: {tell_fact(fact)}" for fact in decision.facts if isinstance(fact, Fact)]
        return lines

    def _kept(self, actions: Iterable[Action]) -> list[str]:
        decisions = [self.decider.done(each, None, self.now_ms) for each in actions]
        return [f"{token}: {tell(answer)}" for decision in decisions for token, answer in decision.released]


def tell(answer: object) -> str:
    """Return an answer as text."""
    if isinstance(answer, list):
        return " ".join(ErrorCode(code).name for code in answer)
    if isinstance(answer, LeaveGroupResponse):
        return ", ".join(
            f"{member.member_id or member.group_instance_id} {ErrorCode(member.error_code).name}"
            for member in answer.members
        )
    code = ErrorCode(getattr(answer, "error_code", answer)).name  # type: ignore[arg-type]
    if isinstance(answer, JoinGroupResponse):
        if answer.error_code:
            return f"{code} member={answer.member_id}"
        told = f"generation={answer.generation_id} protocol={answer.protocol_name} leader={answer.leader}"
        others = ",".join(member.member_id for member in answer.members)
        skip = " skip-assignment" if answer.skip_assignment else ""
        return f"{told} member={answer.member_id} members=[{others}]{skip}"
    if isinstance(answer, SyncGroupResponse) and not answer.error_code:
        return f"assignment={bytes(answer.assignment).decode()!r}"
    return code


def tell_fact(fact: Fact) -> str:
    """Return a fact as text."""
    said = read_fact(fact.key, fact.value)
    if isinstance(said, OffsetFact):
        what = "gone" if said.committed is None else f"at {said.committed.offset}"
        return f"{said.group_id} {said.topic}:{said.partition} {what}"
    assert isinstance(said, GroupFact)
    if said.value is None:
        return f"{said.group_id} gone"
    members = ",".join(f"{m.member_id}:{bytes(m.assignment).decode()}" for m in said.value.members)
    value = said.value
    return f"{said.group_id} generation={value.generation} leader={value.leader} members=[{members}]"


def show(group: GroupView) -> list[str]:
    """Return a group as text."""
    leader = f" leader={group.leader}" if group.leader else ""
    protocol = f" protocol={group.protocol}" if group.protocol else ""
    lines = [f"{group.state} generation={group.generation}{protocol}{leader}"]
    for member in group.members:
        waits = f" waits for {member.waits_for}" if member.waits_for else ""
        lines.append(f"  {member.member_id} assignment={member.assignment.decode()!r}{waits}")
    lines += [f"  {pending} pending" for pending in group.pending]
    return [*lines, f"  why: {group.why}"] if group.why else lines
