"""What clients are told to push, and what is refused to them, by a clock that tests move; as Kafka 4.4.0 answers."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.base.errors import InvalidConfig
from magnetar.kafka.client_metrics import instances
from magnetar.kafka.client_metrics.instances import ZERO, Telemetry, TelemetryRefused
from magnetar.kafka.client_metrics.subscriptions import ClientMetrics, subscription
from magnetar.metadata import MemoryStore, MemoryTree
from magnetar.metadata.cache import MetadataCache
from magnetar.wire.kafka.errors import ErrorCode
from tests.turns import until

LABELS = {
    "client_id": "app-7",
    "client_software_name": "apache-kafka-java",
    "client_source_address": "10.0.0.7",
}


class House:
    def __init__(self) -> None:
        self.now_ms = 1_000
        self.cache = MetadataCache(MemoryStore(MemoryTree()))
        self.metrics = ClientMetrics(self.cache)
        self.telemetry = Telemetry(self.metrics, lambda: self.now_ms)

    async def subscribe(self, name: str, **texts: str) -> None:
        wanted = {key.replace("_", "."): text for key, text in texts.items()}
        await self.metrics.change(name, lambda _: wanted, validate_only=False)

    def push(self, instance_id: bytes, subscription_id: int, **named: Any) -> ErrorCode:
        named = {"compression": 0, "nbytes": 10, "terminating": False} | named
        try:
            self.telemetry.push(instance_id, LABELS, subscription_id, **named)
        except TelemetryRefused as refused:
            return refused.code
        return ErrorCode.NONE


async def house() -> House:
    made = House()
    await made.cache.follow(made.metrics)
    return made


async def test_of_whom_is_asked_what() -> None:
    made = await house()
    assert not made.metrics.subscriptions
    assert made.telemetry.subscribed(ZERO, LABELS)[1][1:] == (300_000, ())
    await made.subscribe("all", metrics="org.apache.kafka.producer.", interval_ms="60000")
    await made.subscribe("mine", metrics="org.apache.kafka.consumer.,org.apache.kafka.producer.",
                         interval_ms="1000", match="client_id=app-.*,client_source_address=10[.]0[.].*")  # fmt: skip
    await made.subscribe("others", metrics="*", interval_ms="100", match="client_id=app")
    assert made.metrics.subscriptions
    first, wanted = made.telemetry.subscribed(ZERO, LABELS)
    assert wanted.interval_ms == 1000
    assert set(wanted.metrics) == {"org.apache.kafka.producer.", "org.apache.kafka.consumer."}
    assert made.telemetry.subscribed(ZERO, LABELS | {"client_id": "app"})[1].metrics == ("*",)
    other, elsewhere = made.telemetry.subscribed(ZERO, {"client_id": "x"})
    assert (elsewhere.interval_ms, elsewhere.metrics) == (60_000, ("org.apache.kafka.producer.",))
    assert len({ZERO, first, other}) == 3


async def test_the_order_of_refusals() -> None:
    made = await house()
    await made.subscribe("s", metrics="*", interval_ms="1000")
    instance_id, wanted = made.telemetry.subscribed(ZERO, LABELS)
    right = wanted.subscription_id
    with pytest.raises(TelemetryRefused) as refused:
        made.telemetry.subscribed(instance_id, LABELS)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert made.push(ZERO, right) is ErrorCode.INVALID_REQUEST
    assert made.push(b"q" * 16, right) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert made.push(instance_id, right + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert made.push(instance_id, right) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert made.telemetry.subscribed(instance_id, LABELS)[1] == wanted, "it was told to ask again"
    made.now_ms += 1000
    assert made.push(instance_id, right, compression=9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    made.now_ms += 1000
    assert made.push(instance_id, right, nbytes=(1 << 20) + 1) is ErrorCode.TELEMETRY_TOO_LARGE
    made.now_ms += 1000
    assert made.telemetry.pushes == 0
    assert made.push(instance_id, right, nbytes=1 << 20, compression=4) is ErrorCode.NONE
    assert made.push(instance_id, right, terminating=True) is ErrorCode.NONE, "the last one need not wait"
    made.now_ms += 5000
    assert made.push(instance_id, right) is ErrorCode.INVALID_REQUEST
    assert (made.telemetry.pushes, made.telemetry.pushed_bytes) == (2, (1 << 20) + 10)


async def test_who_pushes_what_is_no_longer_asked_for_asks_again() -> None:
    made = await house()
    await made.subscribe("s", metrics="a", interval_ms="1000")
    instance_id, wanted = made.telemetry.subscribed(ZERO, LABELS)
    made.now_ms += 1000
    assert made.push(instance_id, wanted.subscription_id) is ErrorCode.NONE
    await made.subscribe("s", metrics="b", interval_ms="1000")
    made.now_ms += 1000
    assert made.push(instance_id, wanted.subscription_id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = made.telemetry.subscribed(instance_id, LABELS)[1]
    assert again.metrics == ("b",)
    await made.subscribe("s")
    await until(lambda: not made.metrics.subscriptions)
    assert made.metrics.own("s") == {}


async def test_instances_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "_MAX_INSTANCES", 100)
    made = await house()
    for _ in range(2000):
        made.telemetry.subscribed(ZERO, LABELS)
    assert len(made.telemetry.instances) == 100


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"interval.ms": "10"}, "Invalid value 10 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ({"interval.ms": "3600001"}, "interval must be between"),
        ({"interval.ms": "often"}, "Not a number of type INT"),
        ({"nope": "1"}, "Unknown client metrics configuration: nope"),
        ({"match": "nope=.*"}, "Illegal client matching pattern: nope=.*"),
        ({"match": "client_id"}, "Illegal client matching pattern: client_id"),
        ({"match": "client_id=(["}, "Illegal client matching pattern: client_id=(["),
    ],
)  # fmt: skip
def test_what_cannot_be_configured(texts: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        subscription(texts)
    assert why in str(refused.value)
