"""Requests about the cluster, and about configurations of whatever has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.auth import Right
from magnetar.kafka.authorization.checks import Checks, GuardFunction
from magnetar.kafka.authorization.groups import DENIED as GROUP_DENIED
from magnetar.kafka.authorization.topics import DENIED as TOPIC_DENIED
from magnetar.kafka.authorization.topics import split
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import (
    alter_configs_response,
    describe_configs_response,
    incremental_alter_configs_response,
)
from magnetar.wire.kafka.messages import alter_user_scram_credentials_response as altered_scram

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
