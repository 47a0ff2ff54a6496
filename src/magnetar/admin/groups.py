"""Consumer groups: who is in one, how far it is, and how an operator moves it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Declined, NotThere, Unreachable
from magnetar.admin.offsets import EARLIEST, LATEST, Key, Spot, list_offsets, resolve
from magnetar.admin.refusals import check
from magnetar.admin.topics import partitions_of
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from magnetar.wire.kafka.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from magnetar.wire.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from magnetar.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from magnetar.wire.kafka.messages.delete_groups_response import DeleteGroupsResponse
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.list_groups_response import ListGroupsResponse
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from magnetar.wire.kafka.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from magnetar.wire.kafka.messages.offset_delete_response import OffsetDeleteResponse
from magnetar.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from magnetar.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse

_WITHOUT_NOT_FOUND = 5  # the last version of DescribeGroups that calls a group dead which is not there
_BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics instead of their ids


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group of many."""

    group: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member and what it was assigned."""

    member: str
    client: str
    host: str
    instance: str | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LagRow:
    """How far a group is in one partition.

    ``committed`` and ``lag`` are None before its first commit, ``first`` and ``end`` where the topic is gone.
    """

    topic: str
    partition: int
    committed: int | None
    first: int | None
    end: int | None
    lag: int | None
    member: str | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One group. ``total_lag`` is what is there to be read: from the commit, otherwise from the beginning."""

    group: str
    state: str
    protocol: str
    members: tuple[MemberRow, ...]
    partitions: tuple[LagRow, ...]
    total_lag: int


@dataclass(frozen=True, slots=True)
class SeekRow:
    """Where a seek moved a group in one partition; ``before`` is None if nothing was committed."""

    topic: str
    partition: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Sought:
    """What a seek did, or would do if it was a dry run."""

    group: str
    dry_run: bool
    partitions: tuple[SeekRow, ...]


@dataclass(frozen=True, slots=True)
class GroupsDeleted:
    """The groups that are gone."""

    deleted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffsetsDeleted:
    """The partitions for which a group has no offset any more."""

    group: str
    partitions: tuple[str, ...]


def list_groups(cluster: ClusterAdmin) -> tuple[GroupRow, ...]:
    """Return all groups by name."""
    rows: dict[str, GroupRow] = {}
    for said in cluster.ask_all(ListGroupsRequest(), ListGroupsResponse):
        check(said.error_code, None, "the list of groups")
        for each in said.groups:
            rows[each.group_id] = GroupRow(each.group_id, each.group_state, each.protocol_type)
    return tuple(sorted(rows.values(), key=lambda row: row.group))


def describe_group(cluster: ClusterAdmin, name: str) -> GroupDetail:
    """Return one group with its members and its lag per partition; raise `NotThere`."""
    found = _classic_group(cluster, name)
    if found.state == "Dead":
        found = _consumer_group(cluster, name) or found
    committed = committed_of(cluster, name)
    if found.state == "Dead" and not committed:
        raise NotThere(f"group {name} does not exist", "See 'magnetar group list'.")
    owners = found.owners
    keys = sorted(committed.keys() | owners.keys())
    low = list_offsets(cluster, keys, EARLIEST, leave_out_missing=True)
    high = list_offsets(cluster, keys, LATEST, leave_out_missing=True)
    rows = tuple(
        LagRow(
            topic=key[0],
            partition=key[1],
            committed=committed.get(key),
            first=low.get(key),
            end=high.get(key),
            lag=high[key] - committed[key] if key in committed and key in high else None,
            member=owners.get(key),
        )
        for key in keys
    )
    total = sum(high[key] - max(committed.get(key, low[key]), low[key]) for key in keys if key in high)
    return GroupDetail(name, found.state, found.protocol, found.members, rows, max(total, 0))


class _Found(NamedTuple):
    """A group of either protocol: its members, and which client holds which partition."""

    state: str
    protocol: str
    members: tuple[MemberRow, ...]
    owners: dict[Key, str]


def _consumer_group(cluster: ClusterAdmin, name: str) -> _Found | None:
    """Return a group of the consumer protocol (KIP-848); None if it is none, or the broker knows none."""
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    try:
        said = cluster.ask_coordinator(name, request, ConsumerGroupDescribeResponse)
    except Unreachable:  # a broker that does not serve this has no such groups
        return None
    group = said.groups[0]
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check(group.error_code, group.error_message, f"group {name}")
    rows: list[MemberRow] = []
    owners: dict[Key, str] = {}
    for member in group.members:
        keys = [
            (each.topic_name, index)
            for each in member.assignment.topic_partitions
            for index in each.partitions
        ]
        owners |= dict.fromkeys(keys, member.client_id)
        host = member.client_host.lstrip("/")
        rows.append(
            MemberRow(
                member.member_id, member.client_id, host, member.instance_id, tuple(_names(sorted(keys)))
            )
        )
    return _Found(group.group_state, group.assignor_name, tuple(rows), owners)


def _classic_group(cluster: ClusterAdmin, name: str) -> _Found:
    request = DescribeGroupsRequest(groups=[name])
    said = cluster.ask_coordinator(name, request, DescribeGroupsResponse, most=_WITHOUT_NOT_FOUND)
    group = said.groups[0]
    check(group.error_code, None, f"group {name}")
    return _Found(group.group_state, group.protocol_data, *_members(group))


def committed_of(cluster: ClusterAdmin, group: str) -> dict[Key, int]:
    """Return what a group committed."""
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    request = OffsetFetchRequest(groups=[asked])
    said = cluster.ask_coordinator(group, request, OffsetFetchResponse, most=_BY_NAME)
    (row,) = said.groups
    check(row.error_code, None, f"group {group}")
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in row.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def seek(
    cluster: ClusterAdmin,
    group: str,
    topics: list[str],
    partitions: list[int] | None,
    spot: Spot,
    *,
    dry_run: bool = False,
) -> Sought:
    """Move a group without members; in all partitions that it committed unless topics or partitions are named.

    A ``shift`` counts from what is committed. Raises `Declined` while the group has members.
    """
    before = committed_of(cluster, group)
    keys = [key for topic in topics for key in partitions_of(cluster, topic)] if topics else sorted(before)
    keys = [key for key in keys if partitions is None or key[1] in partitions]
    if not keys:
        raise NotThere(f"group {group} has committed nothing there", "Name the topics with --topic.")
    shift = spot.kind == "shift"
    after = _shifted(cluster, keys, before, spot.value) if shift else resolve(cluster, keys, spot)
    if not dry_run:
        _commit(cluster, group, after)
    rows = tuple(
        SeekRow(topic, index, before.get((topic, index)), after[topic, index]) for topic, index in keys
    )
    return Sought(group, dry_run, rows)


def _shifted(cluster: ClusterAdmin, keys: list[Key], before: dict[Key, int], by: int) -> dict[Key, int]:
    low, high = list_offsets(cluster, keys, EARLIEST), list_offsets(cluster, keys, LATEST)
    unknown = next((key for key in keys if key not in before), None)
    if unknown is not None:
        raise Declined(
            f"nothing is committed for {unknown[0]}-{unknown[1]}, so there is nothing to shift from",
            "Use --to earliest, latest or an offset.",
        )
    return {key: min(max(before[key] + by, low[key]), high[key]) for key in keys}


def _commit(cluster: ClusterAdmin, group: str, offsets: dict[Key, int]) -> None:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        )
    rows = [OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()]
    said = cluster.ask_coordinator(
        group, OffsetCommitRequest(group_id=group, topics=rows), OffsetCommitResponse, most=_BY_NAME
    )
    for answered in said.topics:
        for row in answered.partitions:
            check(row.error_code, None, f"group {group}")


def delete_groups(cluster: ClusterAdmin, names: list[str]) -> GroupsDeleted:
    """Forget groups without members, and all that they committed."""
    for name in names:
        said = cluster.ask_coordinator(name, DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
        check(said.results[0].error_code, said.results[0].error_message, f"group {name}")
    return GroupsDeleted(tuple(names))


def delete_offsets(cluster: ClusterAdmin, group: str, topics: list[str]) -> OffsetsDeleted:
    """Forget what a group committed for some topics."""
    keys = [key for topic in topics for key in partitions_of(cluster, topic)]
    rows = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[
                OffsetDeleteRequestPartition(partition_index=index) for name, index in keys if name == topic
            ],
        )
        for topic in topics
    ]
    said = cluster.ask_coordinator(
        group, OffsetDeleteRequest(group_id=group, topics=rows), OffsetDeleteResponse
    )
    check(said.error_code, None, f"group {group}")
    for answered in said.topics:
        for row in answered.partitions:
            check(row.error_code, None, f"group {group}")
    return OffsetsDeleted(group, tuple(_names(keys)))


def _members(group: DescribedGroup) -> tuple[tuple[MemberRow, ...], dict[Key, str]]:
    rows: list[MemberRow] = []
    owners: dict[Key, str] = {}
    for member in group.members:
        keys = _assigned(group, bytes(member.member_assignment))
        owners |= dict.fromkeys(keys, member.client_id)
        host = member.client_host.lstrip("/")
        rows.append(
            MemberRow(
                member.member_id,
                member.client_id,
                host,
                member.group_instance_id,
                tuple(_names(sorted(keys))),
            )
        )
    return tuple(rows), owners


def _assigned(group: DescribedGroup, data: bytes) -> list[Key]:
    if group.protocol_type != "consumer" or len(data) < 2:
        return []
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        said = ConsumerProtocolAssignment.decode(data[2:], version)
    except WireError:
        return []  # what members tell each other is their own business
    return [(each.topic, index) for each in said.assigned_partitions for index in each.partitions]


def _names(keys: Iterable[Key]) -> list[str]:
    return [f"{topic}-{index}" for topic, index in keys]
