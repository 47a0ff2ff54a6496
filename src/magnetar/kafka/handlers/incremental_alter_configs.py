"""IncrementalAlterConfigs (KIP-339): single configurations are set, deleted, appended to or subtracted from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.kafka.client_metrics.entries import known_of_client_metrics
from magnetar.kafka.configs.changes import ConfigChange, InvalidChange, Op, changed, check, check_count
from magnetar.kafka.configs.loggers import ROOT, set_level, unset_level
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.kafka.configs.resources import alter, check_broker_name
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.node.broker import Broker
from magnetar.serving.pace import firsts, paced
from magnetar.wire.kafka.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from magnetar.wire.kafka.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change, or with ``validate_only`` say whether that could be; each resource for itself, all or nothing."""
    named, again = await firsts(request.resources, lambda each: (each.resource_type, each.resource_name))
    answers = [
        await _answer(context, resource, twice=key in again, validate_only=request.validate_only)
        async for key, resource in paced(named.items())
    ]
    return IncrementalAlterConfigsResponse(responses=answers)


async def _answer(
    context: RequestContext, resource: AlterConfigsResource, *, twice: bool, validate_only: bool
) -> AlterConfigsResourceResponse:
    kafka, kind, name = context.kafka, resource.resource_type, resource.resource_name
    answer = AlterConfigsResourceResponse(resource_type=kind, resource_name=name, error_message=None)
    try:
        check_count(len(resource.configs))
        changes = [
            ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
        ]
        if twice:
            raise InvalidChange("Each resource must appear at most once.")
        if kind == ConfigResourceType.BROKER_LOGGER:
            _alter_loggers(kafka.broker, name, changes, validate_only=validate_only)
        elif kind == ConfigResourceType.CLIENT_METRICS:
            await kafka.client_metrics.get().change(
                name,
                lambda own: changed(own, changes, lambda key: known_of_client_metrics(own, key)),
                validate_only=validate_only,
            )
        else:
            await alter(
                kafka.broker,
                kafka.groups.configs,
                kind,
                name,
                lambda own, known: changed(own, changes, known),
                by="" if context.access is None else context.access.role,
                validate_only=validate_only,
            )
    except REFUSALS as error:
        answer.error_code, answer.error_message = code_for(error), str(error)
    return answer


def _alter_loggers(
    broker: Broker, name: str, changes: Sequence[ConfigChange], *, validate_only: bool
) -> None:
    check_broker_name(broker, name, or_all=False)
    check(list(changes))
    for change in changes:
        if change.op in (Op.APPEND, Op.SUBTRACT):
            message = f"{Op(change.op).name} operation is not allowed for the BROKER_LOGGER resource"
            raise InvalidChange(message)
        if change.op == Op.DELETE and change.name == ROOT:
            raise InvalidChange("Removing the log level of the root logger is not allowed")
    # All are looked at before any is changed.
    for only_check in [True] if validate_only else [True, False]:
        for change in changes:
            if change.op == Op.DELETE:
                unset_level(change.name, validate_only=only_check)
            else:
                set_level(change.name, change.value or "", validate_only=only_check)
