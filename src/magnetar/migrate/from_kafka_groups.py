"""What belongs to a cluster's topics beside their records, copied to another: groups' offsets, and ACLs."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.refusals import check
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.create_acls_response import CreateAclsResponse
from magnetar.wire.kafka.messages.describe_acls_request import DescribeAclsRequest
from magnetar.wire.kafka.messages.describe_acls_response import DescribeAclsResponse
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.list_groups_response import ListedGroup, ListGroupsResponse
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from magnetar.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from magnetar.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse

_BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics instead of their ids
_ANY = 1  # of resource types, pattern types, operations and permissions in a filter
_WITHOUT_OFFSETS = ("share",)
_WITHOUT_MEMBERS = ("", "Empty", "Dead")


@dataclass(frozen=True, slots=True)
class GroupMoved:
    """One group: for how many partitions what it committed was copied. ``left_out`` says why nothing was."""

    group: str
    partitions: int
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class AclsMoved:
    """How many entries there are, and how many were kept here; ``left_out`` says why some were not."""

    entries: int = 0
    kept: int = 0
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class StillThere:
    """A group that has members, so that its offsets may still move."""

    group: str
    state: str


def copy_groups(
    source: ClusterAdmin,
    target: ClusterAdmin,
    wanted: Callable[[str], bool],
    topics: Container[str],
    *,
    dry_run: bool = False,
) -> tuple[GroupMoved, ...]:
    """Copy what groups have committed for some topics, with what they noted beside it."""
    moved = []
    for group in _groups(source, wanted):
        if group.group_type.lower() in _WITHOUT_OFFSETS:
            moved.append(
                GroupMoved(group.group_id, 0, "a share group: it begins where share.auto.offset.reset says")
            )
            continue
        committed = _committed(source, group.group_id, topics)
        count = sum(len(each.partitions) for each in committed)
        if not count:
            continue
        why = "" if dry_run else _commit(target, group.group_id, committed)
        moved.append(GroupMoved(group.group_id, 0 if why else count, why))
    return tuple(moved)


def members_left(
    source: ClusterAdmin, wanted: Callable[[str], bool], topics: Container[str]
) -> list[StillThere]:
    """Return the groups with members that have committed for some topics."""
    return [
        StillThere(group.group_id, group.group_state)
        for group in _groups(source, wanted)
        if group.group_state not in _WITHOUT_MEMBERS
        and group.group_type.lower() not in _WITHOUT_OFFSETS
        and _committed(source, group.group_id, topics)
    ]


def _groups(source: ClusterAdmin, wanted: Callable[[str], bool]) -> list[ListedGroup]:
    found: dict[str, ListedGroup] = {}
    for said in source.ask_all(ListGroupsRequest(), ListGroupsResponse):
        check(said.error_code, None, "the list of groups")
        found |= {each.group_id: each for each in said.groups if wanted(each.group_id)}
    return [found[name] for name in sorted(found)]


def _committed(source: ClusterAdmin, group: str, topics: Container[str]) -> list[OffsetCommitRequestTopic]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (said,) = source.ask_coordinator(group, request, OffsetFetchResponse, most=_BY_NAME).groups
    check(said.error_code, None, f"group {group}")
    found = []
    for topic in said.topics:
        rows = [
            # The epoch is that of a leader there, and would mean another one here.
            OffsetCommitRequestPartition(
                partition_index=each.partition_index,
                committed_offset=each.committed_offset,
                committed_metadata=each.metadata,
            )
            for each in topic.partitions
            if each.committed_offset >= 0 and not each.error_code
        ]
        if rows and topic.name in topics:
            found.append(OffsetCommitRequestTopic(name=topic.name, partitions=rows))
    return found


def _commit(target: ClusterAdmin, group: str, topics: list[OffsetCommitRequestTopic]) -> str:
    """Commit for a group without members here; give why that cannot be, if it has some."""
    request = OffsetCommitRequest(group_id=group, topics=topics)
    said = target.ask_coordinator(group, request, OffsetCommitResponse, most=_BY_NAME)
    for topic in said.topics:
        for row in topic.partitions:
            if row.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
                return "it has members here, and only they may move it"
            check(row.error_code, None, f"group {group} here")
    return ""


def copy_acls(source: ClusterAdmin, target: ClusterAdmin, *, dry_run: bool = False) -> AclsMoved:
    """Copy all entries; those that are here already stay as they are."""
    request = DescribeAclsRequest(
        resource_type_filter=_ANY, resource_name_filter=None, pattern_type_filter=_ANY, principal_filter=None,
        host_filter=None, operation=_ANY, permission_type=_ANY,
    )  # fmt: skip
    said = source.ask(request, DescribeAclsResponse)
    if said.error_code == ErrorCode.SECURITY_DISABLED:
        return AclsMoved(left_out="the source has no authorizer")
    check(said.error_code, said.error_message, "the source's ACLs")
    entries = [
        AclCreation(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            resource_pattern_type=resource.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for resource in said.resources
        for acl in resource.acls
    ]
    if dry_run or not entries:
        return AclsMoved(len(entries))
    results = target.ask(CreateAclsRequest(creations=entries), CreateAclsResponse).results
    failed = [each for each in results if each.error_code]
    why = ""
    if failed and failed[0].error_code == ErrorCode.SECURITY_DISABLED:
        why = "no authorizer is set here: see authorizer.class.name in docs/security.md"
    elif failed:
        why = failed[0].error_message or ErrorCode(failed[0].error_code).name
    return AclsMoved(len(entries), len(entries) - len(failed), why)
