"""UpdateFeatures (KIP-584): a feature's level comes with the broker, so it can be set to nothing but what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.handlers.features import LEVELS
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from magnetar.wire.kafka.messages.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_UPGRADE = 1
_FIRST_WITHOUT_ROWS = 2


async def update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Agree if each feature is to have the level that it has; otherwise say which cannot, for all together."""
    async for update in paced(request.feature_updates):
        why = _refusal(update, context.kafka.broker.identity.node_id, context.api_version)
        if why is not None:
            failed = f"Invalid update version {update.max_version_level} for feature {update.feature}. {why}"
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=f"The update failed for all features since the following feature had an error: {failed}",
            )
    rows = request.feature_updates if context.api_version < _FIRST_WITHOUT_ROWS else []
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=each.feature, error_message=None) for each in rows],
    )


def _refusal(update: FeatureUpdateKey, node_id: int, version: int) -> str | None:
    level, wanted = LEVELS.get(update.feature), update.max_version_level
    if wanted < 0:
        return "A feature version cannot be less than 0."
    if level is None:
        return f"Local controller {node_id} does not support this feature."
    if wanted > level:
        return f"Local controller {node_id} only supports versions 0-{level}"
    if wanted == level:
        return None
    may_go_down = update.upgrade_type != _UPGRADE if version else update.allow_downgrade
    if not may_go_down:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    return f"The level comes with the broker, and is {level}."
