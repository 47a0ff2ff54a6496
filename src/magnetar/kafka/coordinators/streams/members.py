"""The requests of members of streams groups: join, heartbeat, leave, or silence (KIP-1071). Pure decisions.

A heartbeat is everything, as in consumer groups. The first member brings the topology; until all its topics exist, no
member is assigned anything, and answers list what is missing, so that it can be created.

Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing. ``now_ms`` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Decision
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.modern.members import Draft, ModernGroups
from magnetar.kafka.coordinators.streams import facts
from magnetar.kafka.coordinators.streams.assignor import TaskOwner, assign
from magnetar.kafka.coordinators.streams.checks import check_owned, owned
from magnetar.kafka.coordinators.streams.facts import member_fact, topology_fact
from magnetar.kafka.coordinators.streams.group import (
    LEFT_FOR_A_MOMENT,
    NOTHING,
    StreamsGroup,
    StreamsMember,
    TaskPair,
    TasksState,
)
from magnetar.kafka.coordinators.streams.reconcile import reconcile, since
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.kafka.coordinators.streams.telling import answer_of, member_is_told
from magnetar.kafka.coordinators.streams.topology import Configured, InvalidTopology, MissingTopic, configure
from magnetar.kafka.coordinators.topics import hash_of
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import streams_group_topology_value as stored
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Topology,
)
from magnetar.wire.kafka.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse


class BeatAnswer(NamedTuple):
    """The answer to a heartbeat, and the internal topics that have to be created before any task is assigned."""

    response: StreamsGroupHeartbeatResponse
    missing: tuple[MissingTopic, ...] = ()


class StreamsGroups(ModernGroups[StreamsGroup, StreamsMember, TaskPair]):
    """The streams groups of one partition."""

    facts = facts
    nothing = NOTHING
    timed = ("session", "revoke")

    def _settings(self, group_id: str) -> StreamsSettings:
        return self._configs.of(group_id, StreamsSettings)

    def session_ms(self, group: StreamsGroup, member: StreamsMember) -> int:
        """Return how long a member may be silent."""
        return self._settings(group.group_id).group_streams_session_timeout_ms

    def has_to_revoke(self, member: StreamsMember) -> bool:
        """True if a member has tasks to give up."""
        return member.state is TasksState.UNREVOKED_TASKS

    # Heartbeats.

    def heartbeat(
        self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Decision[BeatAnswer]:
        """Apply a member's heartbeat, and lead it one step on; the request was checked, and is not a leave."""
        draft = Draft()
        settings = self._settings(group.group_id)
        said = owned(request)
        self._check_room(group, request, settings)
        known = self._known(group, request, said)
        topology = _topology(group, request.topology)
        configured = self._configured(group, topology)
        if configured.is_ready:
            check_owned(said, configured.tasks)
        before = known
        if known.member_id != request.member_id:
            before = self.replace_member(group, known, request.member_id, draft)
        member = _told(before, request, caller)
        is_new = member.member_id not in group.members
        if group.is_empty:
            group.since_ms, group.shutdown_by = now_ms, ""
        if group.topology is not topology:
            group.topology = topology
            draft.facts.append(topology_fact(group))
        if member != before or is_new:
            draft.facts.append(member_fact(group.group_id, member))
        group.put(member)
        changed = is_new or _asks_anew(before, member)
        self._renew(group, configured, settings, changed, draft)
        delayed_by = self._assign(group, configured, settings, now_ms, draft)
        moved = reconcile(
            member,
            group.assignment_epoch,
            group.targets.get(member.member_id, NOTHING),
            said,
            group.held_by_others(member),
        )
        if moved is not member:
            self.move(group, moved, now_ms, draft)
        self.heard(group, moved, now_ms)
        if request.shutdown_application:
            group.shutdown_by = moved.member_id
        is_told = member_is_told(group, before, moved, is_new, request, said)
        response = answer_of(
            group,
            moved,
            settings,
            request,
            self._topics,
            caller.api_version,
            is_told=is_told,
            delayed_by=delayed_by,
        )
        return draft.decide(BeatAnswer(response, configured.missing))

    def _check_room(
        self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, settings: StreamsSettings
    ) -> None:
        most = settings.group_streams_max_size
        known = request.member_id in group.members or request.instance_id in group.static
        if len(group.members) >= most and not known:
            raise CoordinatorRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {most} members.",
            )

    def _known(
        self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest, said: TaskPair | None
    ) -> StreamsMember:
        """Return the member as it was before this heartbeat, or the one whose place it takes."""
        joins = request.member_epoch == 0
        if request.instance_id is None:
            if joins and request.member_id not in group.members:
                return StreamsMember(request.member_id)
            known = group.member(request.member_id)
        else:
            found = group.static_member(request.instance_id)
            if found is None:
                if joins:
                    return StreamsMember(request.member_id, request.instance_id)
                raise _unknown_instance(request.instance_id)
            known = found
            if joins and known.member_id != request.member_id:
                if known.epoch != LEFT_FOR_A_MOMENT:
                    raise CoordinatorRefused(
                        ErrorCode.UNRELEASED_INSTANCE_ID,
                        f"Static member {request.member_id} with instance id {request.instance_id} cannot join the "
                        f"group because the instance id is owned by {known.member_id} member.",
                    )
                return known
            _check_instance(known, request.member_id, request.instance_id)
        _check_epoch(known, request.member_epoch, said)
        return known

    # The topology.

    def _configured(self, group: StreamsGroup, topology: stored.StreamsGroupTopologyValue) -> Configured:
        version = self._topics.version
        if group.configured is not None and group.topics_version == version and group.topology is topology:
            return group.configured
        try:
            return configure(topology, self._topics)
        except InvalidTopology as invalid:
            raise CoordinatorRefused(ErrorCode.STREAMS_INVALID_TOPOLOGY, str(invalid)) from None

    def _renew(
        self,
        group: StreamsGroup,
        configured: Configured,
        settings: StreamsSettings,
        changed: bool,
        draft: Draft,
    ) -> None:
        """Begin a new epoch if anything has changed that assignments depend on."""
        assert group.topology is not None
        if group.configured is not configured:
            group.configured, group.topics_version = configured, self._topics.version
        found = hash_of(self._topics, (*group.source_topics(), *configured.partitions))
        validated = group.topology.epoch if configured.is_ready else -1
        configs = (("num.standby.replicas", str(settings.group_streams_num_standby_replicas)),)
        now = (found, validated, configs)
        if found != group.metadata_hash:
            # Which partitions an endpoint serves depends on the sizes of topics, too.
            group.endpoint_epoch += 1
        if changed or now != (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs):
            group.metadata_hash, group.validated_topology_epoch, group.assignment_configs = now
            self.bump(group, draft)

    def _assign(
        self,
        group: StreamsGroup,
        configured: Configured,
        settings: StreamsSettings,
        now_ms: int,
        draft: Draft,
    ) -> str:
        """Make a new target if there is a new epoch; return the reason of a delay, in Kafka's words, if any."""
        if group.epoch <= group.assignment_epoch:
            return ""
        delay_ms = settings.group_streams_initial_rebalance_delay_ms
        if group.since_ms >= 0 and now_ms - group.since_ms < delay_ms:
            return "initial rebalance delay"
        group.since_ms = -1
        if (
            group.assigned_ms >= 0
            and now_ms - group.assigned_ms < settings.group_streams_assignment_interval_ms
        ):
            return "assignment interval"
        group.assigned_ms = now_ms
        workers = [
            TaskOwner(each.member_id, each.process_id, group.targets.get(each.member_id, NOTHING))
            for each in group.members.values()
        ]
        counts = configured.tasks if configured.is_ready else {}
        made = assign(workers, counts, configured.stateful, settings.group_streams_num_standby_replicas)
        self.set_targets(group, group.epoch, made, draft)
        return ""

    # Leaving.

    def leave(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> Decision[BeatAnswer]:
        """Remove a member; a static one that will be back (-2) retains its place for a session."""
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            found = group.static_member(request.instance_id)
            if found is None:
                raise _unknown_instance(request.instance_id)
            _check_instance(found, request.member_id, request.instance_id)
            member = found
        draft = Draft()
        if request.shutdown_application:
            group.shutdown_by = member.member_id
        if request.member_epoch == LEFT_FOR_A_MOMENT:
            left = replace(
                member,
                epoch=LEFT_FOR_A_MOMENT,
                revoking=NOTHING,
                since=since(member, member.tasks, NOTHING, member.epoch),
            )
            self.leave_for_a_moment(group, left, draft)
        else:
            self.drop(group, member, draft)
        response = StreamsGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch, status=[]
        )
        return draft.decide(BeatAnswer(response))

    def dropped(self, group: StreamsGroup, member: StreamsMember, draft: Draft) -> None:
        """Notify the other members that its endpoint is gone."""
        if member.endpoint is not None:
            group.endpoint_epoch += 1


def _topology(group: StreamsGroup, said: Topology | None) -> stored.StreamsGroupTopologyValue:
    """Return the group's topology, or the one that its first member brings; another one is refused."""
    if said is None:
        if group.topology is None:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID, "The group has no topology yet.")
        return group.topology
    if group.topology is not None and group.topology.epoch > said.epoch:
        return group.topology
    brought = stored.StreamsGroupTopologyValue(
        epoch=said.epoch,
        subtopologies=[
            stored.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=sorted(part.source_topics),
                source_topic_regex=sorted(part.source_topic_regex),
                state_changelog_topics=_infos(part.state_changelog_topics),
                repartition_sink_topics=sorted(part.repartition_sink_topics),
                repartition_source_topics=_infos(part.repartition_source_topics),
                copartition_groups=[
                    stored.CopartitionGroup(
                        source_topics=_moved(group_.source_topics, part.source_topics),
                        source_topic_regex=list(group_.source_topic_regex),
                        repartition_source_topics=_moved(
                            group_.repartition_source_topics,
                            [topic.name for topic in part.repartition_source_topics],
                        ),
                    )
                    for group_ in part.copartition_groups
                ],
            )
            for part in sorted(said.subtopologies, key=lambda each: each.subtopology_id)
        ],
    )
    if group.topology is None:
        return brought
    if group.topology.encode(0) != brought.encode(0):
        raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return group.topology


def _infos(topics: Iterable[object]) -> list[stored.TopicInfo]:
    return [
        stored.TopicInfo(
            name=each.name,  # type: ignore[attr-defined]
            partitions=each.partitions,  # type: ignore[attr-defined]
            replication_factor=each.replication_factor,  # type: ignore[attr-defined]
            topic_configs=[
                stored.TopicConfig(key=config.key, value=config.value)
                for config in sorted(each.topic_configs, key=lambda each: each.key)  # type: ignore[attr-defined]
            ],
        )
        for each in sorted(topics, key=lambda each: each.name)  # type: ignore[attr-defined]
    ]


def _moved(indexes: list[int], names: list[str]) -> list[int]:
    """Return where topics are after they were sorted."""
    ordered = sorted(names)
    return sorted(ordered.index(names[index]) for index in indexes)


def _told(member: StreamsMember, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsMember:
    """Return the member with what it reports now; what it omits has not changed."""
    joins = request.member_epoch == 0
    endpoint, tags = request.user_endpoint, request.client_tags
    told = None if endpoint is None else (endpoint.host, endpoint.port)
    if joins and request.process_id not in (None, member.process_id):
        # It has nothing yet, and what its place had in another process may be on another member of this one.
        member = replace(
            member, epoch=0, previous_epoch=0, state=TasksState.STABLE, tasks=NOTHING, revoking=NOTHING
        )
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0
        else request.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=told if joins or told is not None else member.endpoint,
        tags=member.tags if tags is None else tuple(sorted((each.key, each.value) for each in tags)),
    )


def _asks_anew(before: StreamsMember, member: StreamsMember) -> bool:
    return (before.rack_id, before.topology_epoch, before.process_id, before.tags) != (
        member.rack_id,
        member.topology_epoch,
        member.process_id,
        member.tags,
    )


def _check_epoch(member: StreamsMember, epoch: int, said: TaskPair | None) -> None:
    """Refuse an epoch that is not the member's; the one before counts, as the answer with the new one may be lost."""
    if epoch in (0, member.epoch):
        return
    which = "greater" if epoch > member.epoch else "smaller"
    if epoch == member.previous_epoch and epoch < member.epoch and said is not None:
        pairs = ((said.active, member.tasks.active), (said.standby, member.tasks.standby))
        if all(
            numbers <= has.get(subtopology, frozenset())
            for ours, has in pairs
            for subtopology, numbers in ours.items()
        ):
            return
    raise CoordinatorRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {which} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_instance(member: StreamsMember, member_id: str, instance_id: str) -> None:
    if member.member_id != member_id:
        raise CoordinatorRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def _unknown_instance(instance_id: str) -> CoordinatorRefused:
    return CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
