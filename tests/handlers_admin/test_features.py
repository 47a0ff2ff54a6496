"""Features (KIP-584): what is told keeps Kafka's clients to what is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from tests.handlers_admin.conversation import client


@pytest.mark.parametrize("version", range(6))
async def test_features_are_told_and_those_that_are_served_are_finalized(
    tmp_path: Path, version: int
) -> None:
    kafka = await client(tmp_path)
    request = ApiVersionsRequest()
    if version >= 3:
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    told = await kafka.ask(request, version)
    served = {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
    levels = {each.name: (each.min_version, each.max_version) for each in told.supported_features}
    # Java clients of 3.3 to 3.7 refuse a feature whose lowest level is 0, so Kafka leaves those out before version 4.
    expected = {name: (0, level) for name, level in served.items()} | {
        "eligible.leader.replicas.version": (0, 0)
    }
    assert levels == (expected if version >= 4 else {})
    finalized = {
        each.name: (each.min_version_level, each.max_version_level) for each in told.finalized_features
    }
    assert finalized == ({name: (level, level) for name, level in served.items()} if version >= 3 else {})
    assert told.finalized_features_epoch == (0 if version >= 3 else -1)
