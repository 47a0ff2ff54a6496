"""Several processes serve one directory to stock clients of both protocols, whatever befalls one of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from confluent_kafka.admin import AdminClient

from magnetar.doctor.ledgers import verify
from tests.process import BrokerProcess
from tests.workers.house import PARTITIONS, House, is_alive
from tests.workers.load import KafkaLoad, PulsarLoad, check, stored, until

pytestmark = [pytest.mark.slow]
DEDUPLICATES = ("--set", "broker.deduplication.enabled=true")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "data", 2, *DEDUPLICATES, "--set", "worker.session.ms=3000") as made:
        yield made
        assert "Traceback" not in made.log.read_text()


def client_of(house: House) -> pulsar.Client:
    return pulsar.Client(
        f"pulsar://{house.served['pulsar'][0].removeprefix('pulsar://')}",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def test_all_see_as_many_brokers_as_there_are_workers_and_each_leads_a_part(house: House) -> None:
    house.make_topic("t")
    house.until_shared("t")
    seen = house.admin.list_topics(timeout=10)
    assert sorted(seen.brokers) == [0, 1]
    assert len({each.port for each in seen.brokers.values()} | {house.host_and_port[1]}) == 3
    for each in seen.brokers.values():
        alone = AdminClient({"bootstrap.servers": f"{each.host}:{each.port}"}).list_topics(timeout=10)
        assert {(one.id, one.port) for one in alone.brokers.values()} == {
            (one.id, one.port) for one in seen.brokers.values()
        }


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_worker_had_that_is_gone_or_stands_still_is_back_and_nothing_is_lost(
    house: House, sent: signal.Signals, record_testsuite_property: Callable[[str, object], None]
) -> None:
    house.make_topic("k")
    house.make_topic("p")
    house.until_shared("k")
    client = client_of(house)
    loads = [
        (KafkaLoad(house.address, "k", PARTITIONS), "k", 0),
        (PulsarLoad(client, "persistent://public/default/p", PARTITIONS), "p", -1),
    ]
    for load, _, _ in loads:
        load.wait_for_more(2000)
        load.longest_silence_s = 0.0
    dead = house.send(2, sent)
    for load, _, _ in loads:
        load.wait_for_more(3000)
    house.until_again(2, dead)
    assert not is_alive(dead)
    for load, topic, _ in loads:
        house.until_shared(topic)
        load.wait_for_more(3000)
        load.end()
    for load, topic, first in loads:
        check(load, house.address, topic, first)
        record_testsuite_property(f"{topic} records", load.count())
        record_testsuite_property(f"{topic} longest silence s", round(load.longest_silence_s, 2))
    client.close()


def test_all_at_once_and_the_one_who_looks_after_them_lose_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    counts = {}
    for round_ in range(3):
        house = House(data, 3, *DEDUPLICATES)
        topic = f"k{round_}"
        house.make_topic(topic)
        load = KafkaLoad(house.address, topic, PARTITIONS)
        load.wait_for_more(3000)
        pids = house.pids()
        assert len(pids) == 3
        if round_ == 1:
            for number in pids:
                house.send(number, signal.SIGSTOP)
        house.kill()
        until(lambda pids=pids: not any(is_alive(pid) for pid in pids.values()))  # type: ignore[misc]
        counts[topic] = [list(numbers) for numbers in load.acknowledged]
        load._ends.set()
    with House(data, 2, *DEDUPLICATES) as house:
        for topic, acknowledged in counts.items():
            for numbers, told in zip(stored(house.address, topic, PARTITIONS), acknowledged, strict=True):
                assert numbers == list(range(len(numbers)))
                assert set(told) <= set(numbers)
    assert "Traceback" not in house.log.read_text()


def test_a_directory_goes_from_one_to_several_and_back_and_clients_come_along(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sent = 0
    epochs: list[int] = []
    for workers in (1, 2, 1, 3, 1):
        made = BrokerProcess(data) if workers == 1 else House(data, workers)
        with made as house:
            admin = AdminClient({"bootstrap.servers": house.address})
            if not sent:
                from confluent_kafka.admin import NewTopic

                admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result()
            load = KafkaLoad(house.address, "t", PARTITIONS)
            load.wait_for_more(800)
            load.end()
            sent += load.count()
            assert sum(map(len, stored(house.address, "t", PARTITIONS))) == sent
            epochs.append(_epoch(house.address))
    assert epochs[0] == 0
    assert epochs == sorted(set(epochs)), epochs


def _epoch(servers: str) -> int:
    """Return the leader epoch of a partition's newest record."""
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": servers, "group.id": "epoch", "enable.auto.commit": False})
    end = client.get_watermark_offsets(TopicPartition("t", 0), 10)[1]
    client.assign([TopicPartition("t", 0, end - 1)])
    (message,) = client.consume(1, 30)
    client.close()
    return int(message.leader_epoch())


def test_a_topic_that_is_deleted_and_made_again_is_a_new_one_on_all_workers(house: House) -> None:
    for _ in range(4):
        house.make_topic("again")
        load = KafkaLoad(house.address, "again", PARTITIONS)
        load.wait_for_more(400)
        load.end()
        check(load, house.address, "again")
        house.admin.delete_topics(["again"])["again"].result()
    until(lambda: "again" not in house.admin.list_topics(timeout=10).topics)
    assert house.end() == 0
    assert not verify(house.data).findings


def test_they_end_in_order_with_the_one_who_looks_after_them(house: House) -> None:
    house.make_topic("t")
    pids = house.pids()
    began = time.monotonic()
    assert house.end() == 0
    assert time.monotonic() - began < 15
    assert not any(map(is_alive, pids.values()))
    assert not list((house.data / "journal").rglob("*.journal"))
    assert house.log.read_text().count(": closed") == 2
