"""Quotas in the metadata store: what is kept, that it outlives a crash, and that brokers of a cluster follow."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.errors import InvalidQuota
from magnetar.metadata import ANY, MemoryStore, MemoryTree, Put
from magnetar.metadata.cache import MetadataCache
from magnetar.topics.client_quotas import DEFAULT, ClientQuotas, QuotaEntity, check_quota
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.quotas.asking import alter, entry
from tests.turns import until

EXACT, DEFAULTS, SPECIFIED = range(3)
Shown = dict[tuple[tuple[str, str | None], ...], dict[str, float]]


async def followed(tree: MemoryTree) -> tuple[ClientQuotas, MetadataCache]:
    cache = MetadataCache(MemoryStore(tree))
    quotas = ClientQuotas(cache)
    await cache.follow(quotas)
    return quotas, cache


def described(broker: BrokerProcess, *components: tuple[str, int, str | None], strict: bool = False) -> Shown:
    asked = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(DescribeClientQuotasRequest(components=asked, strict=strict))
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple(sorted((each.entity_type, each.entity_name) for each in row.entity)): {
            each.key: each.value for each in row.values
        }
        for row in answer.entries
    }


async def test_brokers_follow_each_other_and_no_change_is_lost() -> None:
    tree = MemoryTree()
    one, first = await followed(tree)
    other, second = await followed(tree)
    alice, everybody = QuotaEntity("alice"), QuotaEntity(DEFAULT, DEFAULT)
    await asyncio.gather(
        *(
            quotas.alter({alice: {key: 1.0 + number}, everybody: {key: 2.0}})
            for number, (quotas, key) in enumerate(
                [(one, "producer_byte_rate"), (other, "consumer_byte_rate")] * 20
            )
        )
    )
    await until(lambda: one.limits == other.limits)
    assert dict(one.all()) == dict(other.all())
    assert set(dict(one.all())[alice]) == {"producer_byte_rate", "consumer_byte_rate"}
    assert one.limits["producer_byte_rate"][everybody] == 2.0
    await one.alter({alice: {"producer_byte_rate": None, "consumer_byte_rate": None}})
    await until(lambda: alice not in other.limits["consumer_byte_rate"])
    assert dict(other.all()).keys() == {everybody}
    late, third = await followed(tree)
    assert late.limits == one.limits
    for cache in (first, second, third):
        await cache.close()


async def test_what_cannot_be_read_is_told_and_the_rest_stays(caplog: pytest.LogCaptureFixture) -> None:
    tree = MemoryTree()
    quotas, cache = await followed(tree)
    await quotas.alter({QuotaEntity("alice"): {"request_percentage": 7.5}})
    caplog.set_level(logging.ERROR)
    damaged = (
        b"{}",
        b'{"entity": {"user": "x"}, "quotas": {"request_percentage": -1}}',
        b'{"entity": 1, "quotas": 2}',
    )
    for content in damaged:
        await MemoryStore(tree).commit([Put("/magnetar/client-quotas/x", content, ANY)])
        await until(lambda: "not a client quota" in caplog.text)
        caplog.clear()
    assert quotas.limits["request_percentage"] == {QuotaEntity("alice"): 7.5}
    await cache.close()


async def test_two_names_of_one_address() -> None:
    quotas, cache = await followed(MemoryTree())
    by_name, by_address = QuotaEntity(ip="localhost"), QuotaEntity(ip="127.0.0.1")
    await quotas.alter({by_name: {"connection_creation_rate": 5.0}})
    limits = quotas.limits["connection_creation_rate"]
    (limited,) = limits
    assert limited.ip in ("127.0.0.1", "::1")
    if limited == by_address:
        await quotas.alter({by_address: {"connection_creation_rate": 6.0}})
        assert limits == {by_address: 6.0}
        await quotas.alter({by_address: {"connection_creation_rate": None}})
        assert limits == {by_address: 5.0}
    await quotas.alter({by_name: {"connection_creation_rate": None}})
    assert limits == {}
    await quotas.alter({QuotaEntity(ip="::ffff:10.0.0.1"): {"connection_creation_rate": 9.0}})
    assert limits == {QuotaEntity(ip="10.0.0.1"): 9.0}
    await cache.close()


@pytest.mark.parametrize(
    ("entity", "key", "value", "why"),
    [  # each as Kafka 4.4.0 says it
        ({"user": "z"}, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "z"}, "producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "z"}, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ({"user": "z"}, "request_percentage", float("nan"), "request_percentage must be a finite number"),
        ({"user": "z"}, "consumer_byte_rate", float("inf"), "consumer_byte_rate must be a finite number"),
        ({"user": "z"}, "consumer_byte_rate", 1e30, "Proposed value for consumer_byte_rate is too large for a LONG."),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 1e10, "is too large for an INT."),
        ({"ip": "10.0.0.1"}, "connection_creation_rate", 1.5, "connection_creation_rate cannot be a fractional value."),
        ({"ip": "10.0.0.1"}, "producer_byte_rate", 9.0, "Invalid configuration key producer_byte_rate"),
        ({"user": "z"}, "connection_creation_rate", 9.0, "Invalid configuration key connection_creation_rate"),
        ({"user": "z"}, "bytes", 9.0, "Invalid configuration key bytes"),
        ({"ip": "10.0.0.1", "user": "z"}, "producer_byte_rate", 9.0, "Invalid quota entity combination"),
        ({"team": "z"}, "producer_byte_rate", 9.0, "Unhandled client quota entity type: team"),
        ({"user": ""}, "producer_byte_rate", 9.0, "Empty user not supported"),
        ({}, "producer_byte_rate", 9.0, "Invalid empty client quota entity"),
        ({"ip": "no.such.host.invalid"}, "connection_creation_rate", 9.0, "is not a valid IP or resolvable host."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_leaves_others_alone(
    broker: BrokerProcess, entity: dict[str, str | None], key: str, value: float, why: str
) -> None:
    fine = {"user": "nobody-who-asks"}
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(alter(entry(entity, **{key: value}), entry(fine, producer_byte_rate=9.0)))
        assert [each.error_code for each in answer.entries] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert why in answer.entries[0].error_message
        assert described(broker)[("user", "nobody-who-asks"),] == {"producer_byte_rate": 9.0}
        assert tuple(sorted(entity.items())) not in described(broker)
        wire.ask(alter(entry(fine, producer_byte_rate=None)))
    assert described(broker) == {}


def test_whole_numbers_and_parts_of_them() -> None:
    check_quota(QuotaEntity("u"), "request_percentage", 0.5)
    check_quota(QuotaEntity("u"), "controller_mutation_rate", 0.25)
    check_quota(QuotaEntity("u"), "consumer_byte_rate", 1e18)
    with pytest.raises(InvalidQuota):
        check_quota(QuotaEntity("u"), "consumer_byte_rate", 0.5)


def test_duplicates_as_in_kafka(broker: BrokerProcess) -> None:
    """Of two entries of one entity the first counts, and both are refused; of two values of a key, neither does."""
    twice = entry({"client-id": "d"}, producer_byte_rate=1.0)
    twice.ops += entry({}, producer_byte_rate=2.0).ops
    both = [
        entry({"client-id": None, "user": "e"}, producer_byte_rate=1.0),
        entry({"user": "e", "client-id": None}, consumer_byte_rate=2.0),
    ]
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(alter(twice, *both))
        assert [(each.error_code, each.error_message) for each in answer.entries] == [
            (42, "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=d})"),
            (42, "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=e})"),
        ]
        assert described(broker) == {(("client-id", None), ("user", "e")): {"producer_byte_rate": 1.0}}
        wire.ask(alter(entry({"client-id": None, "user": "e"}, producer_byte_rate=None)))
        assert wire.ask(alter()).entries == []
        (unchanged,) = wire.ask(alter(entry({"user": "e"}, bytes=None))).entries
        assert unchanged.error_code == ErrorCode.NONE
        (tried,) = wire.ask(alter(entry({"user": "e"}, producer_byte_rate=7.0), validate_only=True)).entries
        assert tried.error_code == ErrorCode.NONE
    assert described(broker) == {}


def test_they_outlive_a_crash_and_are_found_as_kafka_finds_them(
    start_broker: Callable[..., BrokerProcess], tmp_path: Any
) -> None:
    broker = start_broker(tmp_path / "data")
    entries = [
        entry({"user": None}, producer_byte_rate=1000.0),
        entry({"user": None, "client-id": None}, consumer_byte_rate=1000.0),
        entry({"user": "a/b c:%é"}, request_percentage=1.5),
        entry({"user": "a/b c:%é", "client-id": "<default>"}, producer_byte_rate=1e9),
        entry({"ip": None}, connection_creation_rate=1e6),
        *(entry({"client-id": f"c{number}"}, producer_byte_rate=1.0 + number) for number in range(500)),
    ]
    with Wire(broker.host_and_port) as wire:
        answer = wire.ask(alter(*entries))
    assert {each.error_code for each in answer.entries} == {ErrorCode.NONE}
    broker.end(signal.SIGKILL)
    broker = start_broker(tmp_path / "data")
    everything = described(broker)
    assert len(everything) == 505
    assert everything[("client-id", "c499"),] == {"producer_byte_rate": 500.0}

    def users(*components: tuple[str, int, str | None], strict: bool = False) -> set[Any]:
        return set(described(broker, *components, strict=strict))

    default, both = (("user", None),), (("client-id", None), ("user", None))
    odd, odd_both = (("user", "a/b c:%é"),), (("client-id", "<default>"), ("user", "a/b c:%é"))
    assert users(("user", SPECIFIED, None)) == {default, both, odd, odd_both}
    assert users(("user", SPECIFIED, None), strict=True) == {default, odd}
    assert users(("user", DEFAULTS, None)) == {default, both}
    assert users(("user", DEFAULTS, None), strict=True) == {default}
    assert users(("user", EXACT, "a/b c:%é")) == {odd, odd_both}
    assert users(("user", EXACT, "a")) == set()
    assert users(("client-id", SPECIFIED, None), ("user", SPECIFIED, None), strict=True) == {both, odd_both}
    assert users(("ip", SPECIFIED, None)) == {(("ip", None),)}
    assert users(strict=True) == set()
