"""DescribeClientQuotas: nothing is limited by Kafka's quotas here, and what Kafka refuses to look for is refused."""

from __future__ import annotations

import pytest

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.hostile.client import Wire
from tests.process import BrokerProcess

EXACT, DEFAULT, SPECIFIED = range(3)


def looked_for(entity_type: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=entity_type, match_type=match_type, match=match)


@pytest.mark.parametrize(
    "components",
    [
        [],
        [looked_for("user", SPECIFIED)],  # what `kafka-configs --describe --entity-type users` asks
        [looked_for("user", EXACT, "alice"), looked_for("client-id", DEFAULT)],
        [looked_for("ip", SPECIFIED)],
    ],
)
def test_there_are_no_quotas(broker: BrokerProcess, components: list[ComponentData]) -> None:
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(DescribeClientQuotasRequest(components=components))
    assert (answer.error_code, answer.error_message, answer.entries) == (ErrorCode.NONE, None, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([looked_for("", SPECIFIED)], ErrorCode.INVALID_REQUEST),
        ([looked_for("user", SPECIFIED), looked_for("user", DEFAULT)], ErrorCode.INVALID_REQUEST),
        ([looked_for("team", SPECIFIED)], ErrorCode.UNSUPPORTED_VERSION),
        ([looked_for("user", 3)], ErrorCode.INVALID_REQUEST),
        ([looked_for("user", EXACT)], ErrorCode.INVALID_REQUEST),
        ([looked_for("user", DEFAULT, "alice")], ErrorCode.INVALID_REQUEST),
        ([looked_for("ip", SPECIFIED), looked_for("user", SPECIFIED)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_looked_for_is_refused(
    broker: BrokerProcess, components: list[ComponentData], code: ErrorCode
) -> None:
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(DescribeClientQuotasRequest(components=components))
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
