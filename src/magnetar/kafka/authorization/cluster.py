"""Requests about the cluster, and about configurations of whatever has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.broker.auth import Right
from magnetar.kafka.authorization import operations
from magnetar.kafka.authorization.checks import Checks, GuardFunction
from magnetar.kafka.authorization.groups import DENIED as GROUP_DENIED
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import split
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.kafka.operations import NOT_ASKED
from magnetar.kafka.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import (
    alter_configs_response,
    describe_configs_response,
    incremental_alter_configs_response,
)
from magnetar.wire.kafka.messages import alter_user_scram_credentials_response as altered_scram
from magnetar.wire.kafka.messages import describe_user_scram_credentials_response as described_scram
from magnetar.wire.kafka.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from magnetar.wire.kafka.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from magnetar.wire.kafka.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from magnetar.wire.kafka.messages.describe_acls_response import DescribeAclsResponse
from magnetar.wire.kafka.messages.describe_log_dirs_response import DescribeLogDirsResponse
from magnetar.wire.kafka.messages.list_config_resources_response import ListConfigResourcesResponse
from magnetar.wire.kafka.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_MESSAGES = {
    DENIED: "Cluster authorization failed.",
    TOPIC_DENIED: "Topic authorization failed.",
    GROUP_DENIED: "Group authorization failed.",
}


def _on_cluster(right: Right, refused: Callable[[Any], Any]) -> GuardFunction:
    """Return the guard of what needs a right to the cluster; ``refused`` makes everybody else's answer."""

    async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
        return await answer(request, context) if checks.on_cluster(right) else refused(request)

    return guard


# DESCRIBE, DESCRIBE_CONFIGS and ALTER on the cluster.
describe_log_dirs = _on_cluster(Right.describe_cluster, lambda _: DescribeLogDirsResponse(error_code=DENIED))
list_config_resources = _on_cluster(
    Right.see_cluster_configs, lambda _: ListConfigResourcesResponse(error_code=DENIED)
)
list_partition_reassignments = _on_cluster(
    Right.describe_cluster,
    lambda _: ListPartitionReassignmentsResponse(error_code=DENIED, error_message=_MESSAGES[DENIED]),
)
alter_partition_reassignments = _on_cluster(
    Right.alter_cluster,
    lambda _: AlterPartitionReassignmentsResponse(error_code=DENIED, error_message=_MESSAGES[DENIED]),
)
describe_user_scram_credentials = _on_cluster(
    Right.describe_cluster,
    lambda request: described_scram.DescribeUserScramCredentialsResponse(
        error_code=DENIED,
        error_message=_MESSAGES[DENIED],
        results=[
            described_scram.DescribeUserScramCredentialsResult(
                user=each.name, error_code=DENIED, error_message=_MESSAGES[DENIED]
            )
            for each in request.users or ()
        ],
    ),
)
alter_user_scram_credentials = _on_cluster(
    Right.alter_cluster,
    lambda request: altered_scram.AlterUserScramCredentialsResponse(
        results=[
            altered_scram.AlterUserScramCredentialsResult(
                user=name, error_code=DENIED, error_message=_MESSAGES[DENIED]
            )
            for name in sorted({each.name for each in (*request.deletions, *request.upsertions)})
        ]
    ),
)


def _refused_filters(request: Any) -> DeleteAclsResponse:
    rows = [
        DeleteAclsFilterResult(error_code=DENIED, error_message=_MESSAGES[DENIED]) for _ in request.filters
    ]
    return DeleteAclsResponse(filter_results=rows)


def _refused_creations(request: Any) -> CreateAclsResponse:
    row = AclCreationResult(error_code=DENIED, error_message=_MESSAGES[DENIED])
    return CreateAclsResponse(results=[row] * len(request.creations))


describe_acls = _on_cluster(
    Right.describe_cluster, lambda _: DescribeAclsResponse(error_code=DENIED, error_message=_MESSAGES[DENIED])
)
create_acls = _on_cluster(Right.alter_cluster, _refused_creations)
delete_acls = _on_cluster(Right.alter_cluster, _refused_filters)


async def describe_cluster(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """Everybody who is let in may know the brokers."""
    response = await answer(request, context)
    if response.cluster_authorized_operations != NOT_ASKED:
        response.cluster_authorized_operations = operations.of_cluster(checks)
    return response


async def describe_configs(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE_CONFIGS on each topic, group, or the cluster."""
    request.resources, denied = await split(
        request.resources, lambda each: not _refusal(each, checks, _SEEING)
    )
    response = await answer(request, context)
    response.results += [
        _refused(describe_configs_response.DescribeConfigsResult, each, checks, _SEEING)
        async for each in paced(denied)
    ]
    return response


async def alter_configs(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """ALTER_CONFIGS on each topic, group, or the cluster."""
    return await _alter(alter_configs_response.AlterConfigsResourceResponse, request, context, checks, answer)


async def incremental_alter_configs(
    request: Any, context: RequestContext, checks: Checks, answer: Handler
) -> Any:
    """ALTER_CONFIGS on each topic, group, or the cluster."""
    return await _alter(
        incremental_alter_configs_response.AlterConfigsResourceResponse, request, context, checks, answer
    )


async def _alter(row: type, request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    request.resources, denied = await split(
        request.resources, lambda each: not _refusal(each, checks, _ALTERING)
    )
    response = await answer(request, context)
    response.responses += [_refused(row, each, checks, _ALTERING) async for each in paced(denied)]
    return response


class _OfConfigs(NamedTuple):
    """What is asked for a configuration, by what has it."""

    of_topic: Callable[[Checks, str], bool]
    of_group: Callable[[Checks, str], bool]
    of_cluster: Right


_SEEING = _OfConfigs(Checks.sees_configs, Checks.sees_group_configs, Right.see_cluster_configs)
_ALTERING = _OfConfigs(Checks.alters_configs, Checks.alters_group_configs, Right.alter_cluster_configs)


def _refusal(resource: Any, checks: Checks, asked: _OfConfigs) -> ErrorCode:
    """Return the code for a resource that the asker may not touch, or NONE."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        return ErrorCode.NONE if asked.of_topic(checks, resource.resource_name) else TOPIC_DENIED
    if resource.resource_type == ConfigResourceType.GROUP:
        return ErrorCode.NONE if asked.of_group(checks, resource.resource_name) else GROUP_DENIED
    return ErrorCode.NONE if checks.on_cluster(asked.of_cluster) else DENIED


def _refused(row: type, resource: Any, checks: Checks, asked: _OfConfigs) -> Any:
    code = _refusal(resource, checks, asked)
    return row(
        error_code=code,
        error_message=_MESSAGES[code],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
