"""The consumer protocol (KIP-848) with a stock client: volume, members that come, go and return, a broker that dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess

RECORDS = 20_000
PARTITIONS = 12
PATIENCE_S = 60
JOINS_AGAIN = KafkaError.REBALANCE_IN_PROGRESS
"""What a member is told that waits while its group goes over to another protocol, as Kafka tells it: it joins again.
librdkafka says so to its application."""
QUICK = (
    "--set",
    "group.consumer.heartbeat.interval.ms=200",
    "--set",
    "group.consumer.assignment.interval.ms=0",
    "--set",
    "group.consumer.session.timeout.ms=6000",
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose members hear of changes soon."""
    with BrokerProcess(tmp_path_factory.mktemp("quick") / "data", *QUICK) as process:
        yield process


def consumer(address: str, group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,
            **options,
        }
    )


def fill(address: str, topic: str, records: int = RECORDS, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result()
    produce(address, topic, range(records), partitions)


def produce(address: str, topic: str, numbers: Iterable[int], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in numbers:
        producer.produce(topic, value=b"%d" % number, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def until(done: Callable[[], bool], crew: Iterable[Consumer], seen: Counter[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, "it never came to rest"
        for member in crew:
            for message in member.consume(2000, 0.1):
                error = message.error()
                assert error is None or error.retriable() or error.code() == JOINS_AGAIN, error
                if error is None:
                    seen[message.value()] += 1


def commit(member: Consumer) -> None:
    """Commit what it has read, if it has read anything."""
    try:
        member.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise


def describe(address: str, group: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("magnetar")), "group", "describe", group]
    told = subprocess.run(
        [*command, "--bootstrap-server", address, "--json"], check=True, capture_output=True, text=True
    )
    return dict(json.loads(told.stdout))


def shares(crew: Iterable[Consumer]) -> list[int]:
    return [len(member.assignment()) for member in crew]


def assigned(crew: Iterable[Consumer]) -> list[int]:
    return sorted(each.partition for member in crew for each in member.assignment())


@pytest.mark.slow
def test_members_share_a_topic_and_take_over_from_each_other(quick: BrokerProcess) -> None:
    fill(quick.address, "shared")
    seen: Counter[bytes] = Counter()
    crew = [consumer(quick.address, "crew") for _ in range(3)]
    for number, member in enumerate(crew):
        member.subscribe(["shared"])
        crowd = crew[: number + 1]
        share = [PARTITIONS // len(crowd)] * len(crowd)
        until(lambda crowd=crowd, share=share: shares(crowd) == share, crowd, seen)  # type: ignore[misc]
    assert assigned(crew) == list(range(PARTITIONS))
    until(lambda: len(seen) == RECORDS, crew, seen)
    admin = AdminClient({"bootstrap.servers": quick.address})
    told = admin.describe_consumer_groups(["crew"])["crew"].result()
    assert (told.state.name, told.type.name, len(told.members)) == ("STABLE", "CONSUMER", 3)
    assert {len(each.assignment.topic_partitions) for each in told.members} == {4}
    (listed,) = [each for each in admin.list_consumer_groups().result().valid if each.group_id == "crew"]
    assert listed.type.name == "CONSUMER"
    for member in crew:
        commit(member)
    shown = describe(quick.address, "crew")
    assert (shown["state"], shown["protocol"], shown["total_lag"]) == ("Stable", "uniform", 0)
    assert sorted(len(each["partitions"]) for each in shown["members"]) == [4, 4, 4]
    assert {each["member"] for each in shown["partitions"]} == {"rdkafka"}
    crew.pop().close()
    until(lambda: shares(crew) == [6, 6], crew, seen)
    for member in crew:
        member.close()
    assert max(seen.values()) == 1, "what was committed came again"


def test_a_group_goes_on_where_it_committed_whichever_protocol_its_members_speak(
    quick: BrokerProcess,
) -> None:
    fill(quick.address, "both", 0)
    seen: Counter[bytes] = Counter()
    for number, protocol in enumerate(("classic", "consumer", "classic", "consumer")):
        produce(quick.address, "both", range(number * 300, number * 300 + 300), PARTITIONS)
        member = consumer(quick.address, "both", **{"group.protocol": protocol, "enable.auto.commit": False})
        member.subscribe(["both"])
        until(lambda number=number: len(seen) == number * 300 + 300, [member], seen)  # type: ignore[misc]
        member.commit(asynchronous=False)
        member.close()
    assert max(seen.values()) == 1


@pytest.mark.slow
def test_a_killed_broker_finds_its_members_again(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", *QUICK)
    fill(broker.address, "killed")
    seen: Counter[bytes] = Counter()
    crew = [consumer(broker.address, "killed", **{"enable.auto.commit": False}) for _ in range(2)]
    for member in crew:
        member.subscribe(["killed"])
    until(lambda: shares(crew) == [6, 6] and len(seen) > 100, crew, seen)
    before = [sorted(each.partition for each in member.assignment()) for member in crew]
    for member in crew:
        commit(member)
    address = broker.address
    broker.kill()
    broker = start_broker(tmp_path / "data", *QUICK, kafka=address)
    until(lambda: len(seen) == RECORDS, crew, seen)
    after = [sorted(each.partition for each in member.assignment()) for member in crew]
    assert after == before, "nobody had to give up anything"
    for member in crew:
        commit(member)
        member.close()


def test_a_pattern_finds_topics_that_come_later(quick: BrokerProcess) -> None:
    fill(quick.address, "late-a", 10, 2)
    member = consumer(quick.address, "pattern")
    member.subscribe(["^late-.*"])
    seen: Counter[bytes] = Counter()
    until(lambda: len(member.assignment()) == 2, [member], seen)
    fill(quick.address, "late-b", 10, 3)
    until(lambda: len(member.assignment()) == 5, [member], seen)
    member.close()


def test_a_static_member_returns_to_its_partitions(quick: BrokerProcess) -> None:
    fill(quick.address, "static", 100)
    seen: Counter[bytes] = Counter()
    crew = [consumer(quick.address, "static", **{"group.instance.id": f"i{number}"}) for number in range(2)]
    for member in crew:
        member.subscribe(["static"])
    until(lambda: shares(crew) == [6, 6], crew, seen)
    had = assigned(crew[1:])
    crew.pop().close()
    back = consumer(quick.address, "static", **{"group.instance.id": "i1"})
    back.subscribe(["static"])
    crew.append(back)
    until(lambda: len(back.assignment()) == 6, crew, seen)
    assert assigned([back]) == had
    for member in crew:
        member.close()


def test_a_stranger_may_not_commit_for_a_group_with_members(quick: BrokerProcess) -> None:
    fill(quick.address, "guarded", 10, 1)
    member = consumer(quick.address, "guarded")
    member.subscribe(["guarded"])
    seen: Counter[bytes] = Counter()
    until(lambda: len(member.assignment()) == 1, [member], seen)
    stranger = consumer(quick.address, "guarded", **{"group.protocol": "classic"})
    with pytest.raises(KafkaException):
        stranger.commit(offsets=[TopicPartition("guarded", 0, 5)], asynchronous=False)
    stranger.close()
    member.close()


@pytest.mark.slow
def test_a_group_has_settings_of_its_own_and_keeps_them(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    narrow = ("--set", "group.consumer.min.heartbeat.interval.ms=100")
    broker = start_broker(tmp_path / "data", *narrow)
    admin = AdminClient({"bootstrap.servers": broker.address})
    change = ConfigResource(
        ConfigResource.Type.GROUP,
        "fast",
        incremental_configs=[
            ConfigEntry(
                "consumer.heartbeat.interval.ms",
                "1234",
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    for future in admin.incremental_alter_configs([change]).values():
        future.result()
    address = broker.address
    broker.kill()
    broker = start_broker(tmp_path / "data", *narrow, kafka=address)
    told = admin.describe_configs([ConfigResource(ConfigResource.Type.GROUP, "fast")])
    (configs,) = [future.result() for future in told.values()]
    assert configs["consumer.heartbeat.interval.ms"].value == "1234"
    with Wire(broker.host_and_port) as wire:
        for group, interval_ms in (("fast", 1234), ("other", 5000)):
            answer = wire.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=group,
                    member_id="m",
                    member_epoch=0,
                    rebalance_timeout_ms=1000,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                )
            )
            assert (answer.error_code, answer.heartbeat_interval_ms) == (0, interval_ms)
