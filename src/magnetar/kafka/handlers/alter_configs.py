"""AlterConfigs: all of a resource's own configurations are replaced by those given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.configs.changes import InvalidChange, check_count, replaced
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.kafka.configs.resources import alter
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.serving.pace import firsts, paced
from magnetar.wire.kafka.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from magnetar.wire.kafka.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace, or with ``validate_only`` say whether that could be; each resource for itself."""
    named, again = await firsts(request.resources, lambda each: (each.resource_type, each.resource_name))
    answers = [
        await _answer(context, resource, twice=key in again, validate_only=request.validate_only)
        async for key, resource in paced(named.items())
    ]
    return AlterConfigsResponse(responses=answers)


async def _answer(
    context: RequestContext, resource: AlterConfigsResource, *, twice: bool, validate_only: bool
) -> AlterConfigsResourceResponse:
    kafka, kind, name = context.kafka, resource.resource_type, resource.resource_name
    answer = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
    try:
        if twice:
            raise InvalidChange("Each resource must appear at most once.")
        check_count(len(resource.configs))
        after = replaced((config.name, config.value) for config in resource.configs)
        if kind == ConfigResourceType.CLIENT_METRICS:
            await kafka.client_metrics.get().change(name, lambda _: after, validate_only=validate_only)
        else:
            await alter(
                kafka.broker,
                kafka.groups.configs,
                kind,
                name,
                lambda _own, _known: after,
                by="" if context.access is None else context.access.role,
                validate_only=validate_only,
            )
    except REFUSALS as error:
        answer.error_code, answer.error_message = code_for(error), str(error)
    return answer
