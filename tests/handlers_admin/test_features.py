"""Features (KIP-584): what is told keeps Kafka's clients to what is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from tests.handlers_admin.conversation import client


@pytest.mark.parametrize("version", range(5))
async def test_features_are_told_and_those_that_are_served_are_finalized(
    tmp_path: Path, version: int
) -> None:
    kafka = await client(tmp_path)
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    told = await kafka.ask(request, version)
    levels = {feature.name: feature.max_version for feature in told.supported_features}
    served = (
        {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
        if version >= 3
        else {}
    )
    # Clients of version 3 refuse what has level 0; Kafka 4.3.1 leaves such features out for them, too.
    others = {name: level for name, level in levels.items() if name not in served}
    assert set(others.values()) == ({0} if version >= 4 else set())
    assert {"eligible.leader.replicas.version"} <= set(others) or version < 4
    finalized = {
        each.name: (each.min_version_level, each.max_version_level) for each in told.finalized_features
    }
    assert finalized == {name: (level, level) for name, level in served.items()}
    assert levels.items() >= served.items()
    assert told.finalized_features_epoch == (0 if version >= 3 else -1)
