"""Requests about the cluster, and about configurations of whatever has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magnetar.kafka.authorization import operations
from magnetar.kafka.authorization.checks import Checks, GuardFunction
from magnetar.kafka.authorization.groups import DENIED as GROUP_DENIED
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import split
from magnetar.kafka.configs.entries import ConfigResourceType
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


def _for_operators(refused: Callable[[Any], Any]) -> GuardFunction:
    """Return the guard of what operators alone may ask; ``refused`` makes everybody else's answer."""

    async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
        return await answer(request, context) if checks.operates() else refused(request)

    return guard


# DESCRIBE, DESCRIBE_CONFIGS and ALTER on the cluster.
describe_log_dirs = _for_operators(lambda _: DescribeLogDirsResponse(error_code=DENIED))
list_config_resources = _for_operators(lambda _: ListConfigResourcesResponse(error_code=DENIED))
list_partition_reassignments = _for_operators(
    lambda _: ListPartitionReassignmentsResponse(error_code=DENIED, error_message=_MESSAGES[DENIED])
)
alter_partition_reassignments = _for_operators(
    lambda _: AlterPartitionReassignmentsResponse(error_code=DENIED, error_message=_MESSAGES[DENIED])
)
describe_user_scram_credentials = _for_operators(
    lambda request: described_scram.DescribeUserScramCredentialsResponse(
        error_code=DENIED,
        error_message=_MESSAGES[DENIED],
        results=[
            described_scram.DescribeUserScramCredentialsResult(
                user=each.name, error_code=DENIED, error_message=_MESSAGES[DENIED]
            )
            for each in request.users or ()
        ],
    )
)
alter_user_scram_credentials = _for_operators(
    lambda request: altered_scram.AlterUserScramCredentialsResponse(
        results=[
            altered_scram.AlterUserScramCredentialsResult(
                user=name, error_code=DENIED, error_message=_MESSAGES[DENIED]
            )
            for name in sorted({each.name for each in (*request.deletions, *request.upsertions)})
        ]
    )
)


async def describe_cluster(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """Everybody who is let in may know the brokers."""
    response = await answer(request, context)
    if response.cluster_authorized_operations != NOT_ASKED:
        response.cluster_authorized_operations = operations.of_cluster(checks)
    return response


async def describe_configs(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """DESCRIBE_CONFIGS on each topic, group, or the cluster."""
    request.resources, denied = await split(
        request.resources, lambda each: not _refusal(each, checks, checks.sees)
    )
    response = await answer(request, context)
    response.results += [
        _refused(describe_configs_response.DescribeConfigsResult, each, checks, checks.sees)
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
        request.resources, lambda each: not _refusal(each, checks, checks.manages)
    )
    response = await answer(request, context)
    response.responses += [_refused(row, each, checks, checks.manages) async for each in paced(denied)]
    return response


def _refusal(resource: Any, checks: Checks, of_topic: Callable[[str], bool]) -> ErrorCode:
    """Return the code for a resource that the asker may not touch, or NONE."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        return ErrorCode.NONE if of_topic(resource.resource_name) else TOPIC_DENIED
    if resource.resource_type == ConfigResourceType.GROUP:
        return ErrorCode.NONE if checks.uses(resource.resource_name) else GROUP_DENIED
    return ErrorCode.NONE if checks.operates() else DENIED


def _refused(row: type, resource: Any, checks: Checks, of_topic: Callable[[str], bool]) -> Any:
    code = _refusal(resource, checks, of_topic)
    return row(
        error_code=code,
        error_message=_MESSAGES[code],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
