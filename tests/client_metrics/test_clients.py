"""CLIENT_METRICS resources through a broker's own APIs; and a stock client that is asked to push, and does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from magnetar.wire.kafka.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from magnetar.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from magnetar.wire.kafka.messages.list_config_resources_request import ListConfigResourcesRequest
from magnetar.wire.kafka.messages.push_telemetry_request import PushTelemetryRequest
from tests.figures.told import scraped
from tests.hostile.client import Wire
from tests.process import BrokerProcess

CLIENT_METRICS = 16
SET, DELETE = 0, 1


def alter(wire: Wire, name: str, op: int = SET, **texts: str) -> int:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=op, value=None if op else text)
        for key, text in texts.items()
    ]
    asked = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    return int(wire.ask(IncrementalAlterConfigsRequest(resources=[asked])).responses[0].error_code)


def described(wire: Wire, name: str) -> Any:
    asked = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
    return wire.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True)).results[0]


def asked_for(wire: Wire) -> set[int]:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    return {row.api_key for row in wire.ask(request).api_keys}


@pytest.mark.slow
def test_subscriptions_are_configurations(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data")
    with Wire(broker.host_and_port) as wire:
        assert not {71, 72} & asked_for(wire)
        assert alter(wire, "slow", metrics="org.apache.kafka.producer.", interval_ms="1000") == 0
        assert alter(wire, "slow", match="client_id=a.*") == 0
        assert {71, 72} <= asked_for(wire)
        for version in (0, 1):
            rows = wire.ask(ListConfigResourcesRequest(), version).config_resources
            assert [row.resource_name for row in rows if row.resource_type == CLIENT_METRICS] == ["slow"]
        rows = [(each.name, each.value, each.config_source) for each in described(wire, "slow").configs]
        assert sorted(rows) == [
            ("interval.ms", "1000", 7), ("match", "client_id=a.*", 7), ("metrics", "org.apache.kafka.producer.", 7),
        ]  # fmt: skip
        synonyms = {
            each.name: [one.value for one in each.synonyms] for each in described(wire, "slow").configs
        }
        assert synonyms["interval.ms"] == ["1000"], "Kafka names no default beside it"
        assert {each.config_source for each in described(wire, "none").configs} == {5}
        assert described(wire, "").error_code == ErrorCode.INVALID_REQUEST
        assert alter(wire, "", interval_ms="1000") == ErrorCode.INVALID_REQUEST
        assert alter(wire, "slow", interval_ms="1") == ErrorCode.INVALID_REQUEST
        assert alter(wire, "slow", match="client_id=([") == ErrorCode.INVALID_CONFIG
    broker.end()
    broker = start_broker(tmp_path / "data")
    with Wire(broker.host_and_port) as wire:
        assert {71, 72} <= asked_for(wire)
        told = wire.ask(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)))
        assert (told.push_interval_ms, told.requested_metrics) == (300_000, []), "it is called something else"
        push = PushTelemetryRequest(
            client_instance_id=told.client_instance_id, subscription_id=told.subscription_id + 1
        )
        assert wire.ask(push).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert alter(wire, "slow", DELETE, metrics="", interval_ms="", match="") == 0
        assert not {71, 72} & asked_for(wire)


@pytest.mark.slow
def test_librdkafka_pushes_what_it_is_asked_for(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", "--http", "127.0.0.1:0")
    with Wire(broker.host_and_port) as wire:
        assert alter(wire, "all", metrics="*", interval_ms="200") == 0
    producer = Producer({"bootstrap.servers": broker.address, "enable.metrics.push": True})
    pushed = 0.0
    while not pushed:
        producer.produce("t", b"x")
        producer.flush()
        time.sleep(0.2)
        pushed = scraped(broker).of("magnetar_client_telemetry_pushes_total")
    assert scraped(broker).of("magnetar_client_telemetry_bytes_total") > 0
    del producer
