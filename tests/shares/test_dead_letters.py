"""Dead letters of share groups (KIP-1191) with a stock client: what comes where, and that a crash loses none."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from magnetar.wire.kafka.messages import read_share_group_state_request as reading
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.shares.test_answers import RECORDS, Asking, E, given
from tests.shares.test_share_consumers import PATIENCE_S, QUICK, lag, until

PREFIX = "__dlq.errors."
REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."
NUMBERS = 3000
SOURCES, QUEUES = 4, 3
LETTERS = (*QUICK, "--set", "group.share.record.lock.duration.ms=1000")


@pytest.fixture(scope="module")
def letters_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("letters") / "data", *LETTERS, "--http", "127.0.0.1:0"
    ) as process:
        yield process


def admin_of(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def alter(address: str, kind: ResourceType, name: str, **configs: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = admin_of(address)
    admin.incremental_alter_configs([resource])[resource].result()


def make(address: str, topic: str, partitions: int = 1, **configs: str) -> None:
    new = NewTopic(topic, partitions, config={key.replace("_", "."): each for key, each in configs.items()})
    admin = admin_of(address)
    admin.create_topics([new])[topic].result()


def make_queue(address: str, topic: str, partitions: int = 1, **configs: str) -> None:
    make(address, topic, partitions, errors_deadletterqueue_group_enable="true", **configs)


def configure(address: str, group: str, queue: str, **configs: str) -> None:
    alter(address, ResourceType.GROUP, group, errors_deadletterqueue_topic_name=queue, **configs)


class Letter:
    """One record of a dead-letter queue."""

    def __init__(self, message: Any) -> None:
        self.partition = message.partition()
        self.key, self.value = message.key(), message.value()
        self.own = [each for each in message.headers() if not each[0].startswith(PREFIX)]
        self.told = {
            key.removeprefix(PREFIX): value.decode()
            for key, value in message.headers()
            if key.startswith(PREFIX)
        }
        self.source = int(self.told["partition"]), int(self.told["offset"])


def letters(address: str, topic: str) -> list[Letter]:
    """Return all that a queue holds now."""
    found = admin_of(address).list_topics(timeout=PATIENCE_S).topics.get(topic)
    if found is None or found.error is not None:
        return []
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, index, 0) for index in found.partitions])
    got, at_end = [], set()
    while len(at_end) < len(found.partitions):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            got.append(Letter(message))
        else:
            at_end.add(message.partition())
    consumer.close()
    return got


def work(
    address: str, group: str, topic: str, judge: Callable[[int, int], AcknowledgeType], records: int
) -> None:
    """Judge each record by its number and how often it has come, until none is left."""
    member = ShareConsumer(
        {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    member.subscribe([topic])
    times: Counter[int] = Counter()
    left = set(range(records))

    def judge_some() -> bool:
        for message in member.poll(0.2):
            assert message.error() is None
            number = int(message.key())
            times[number] += 1
            said = judge(number, times[number])
            member.acknowledge(message, said)
            if said is not AcknowledgeType.RELEASE or times[number] == 2:
                left.discard(number)
        member.commit_sync(PATIENCE_S)
        return not left

    until(judge_some, lambda: len(left))
    member.close()


@contextmanager
def rejecting(address: str, group: str, topic: str) -> Iterator[set[int]]:
    """Have a member reject whatever comes until the block ends; give the numbers whose rejection was kept."""
    ended = threading.Event()
    rejected: set[int] = set()

    def reject() -> None:
        member = ShareConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.records": 100,
            }
        )
        member.subscribe([topic])
        while not ended.is_set():
            messages = [each for each in member.poll(0.1) if each.error() is None]
            for each in messages:
                member.acknowledge(each, AcknowledgeType.REJECT)
            try:
                outcome = member.commit_sync(PATIENCE_S)
            except KafkaException:
                continue
            kept = {each.partition for each, error in outcome.items() if error is None}
            rejected.update(int(each.key()) for each in messages if each.partition() in kept)
        member.close()

    worker = threading.Thread(target=reject)
    worker.start()
    try:
        yield rejected
    finally:
        ended.set()
        worker.join()


def fill(address: str, topic: str, records: int = NUMBERS) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(records):
        producer.produce(
            topic,
            key=b"%d" % number,
            value=b"value of %d" % number,
            headers=[("own", b"%d" % number), ("own", None)],
            partition=number % SOURCES,
        )
    assert producer.flush(PATIENCE_S) == 0


def third(number: int, times: int) -> AcknowledgeType:
    """Reject every third record, give back another third."""
    kinds = (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)
    return kinds[number % 3]


def test_what_is_rejected_or_comes_too_often_is_copied_to_the_queue(letters_broker: BrokerProcess) -> None:
    address = letters_broker.address
    make(address, "copied", SOURCES)
    make_queue(address, "dlq.copied", QUEUES)
    configure(
        address,
        "copied",
        "dlq.copied",
        share_delivery_count_limit="2",
        errors_deadletterqueue_copy_record_enable="true",
    )
    fill(address, "copied")
    work(address, "copied", "copied", third, NUMBERS)
    until(lambda: lag(address, "copied", "copied") == 0, lambda: lag(address, "copied", "copied"))
    found = letters(address, "dlq.copied")
    assert sorted(int(each.key) for each in found) == [each for each in range(NUMBERS) if each % 3 != 2]
    for each in found:
        number = int(each.key)
        assert each.value == b"value of %d" % number
        assert each.own == [("own", b"%d" % number), ("own", None)]
        assert each.source == (number % SOURCES, number // SOURCES)
        assert each.partition == number % SOURCES % QUEUES
        rejected = number % 3 == 0
        assert each.told == {
            "topic": "copied",
            "partition": str(number % SOURCES),
            "offset": str(number // SOURCES),
            "group": "copied",
            "delivery.count": "1" if rejected else "2",
            "message": REJECTED if rejected else TOO_OFTEN,
        }
    counted = figures(letters_broker, "copied")
    assert counted["recordcount"] == len(found)
    assert 0 < counted["totalproducerequests_total"] <= len(found)
    assert counted["failedproducerequests_total"] == 0


def figures(process: BrokerProcess, group: str) -> dict[str, float]:
    """Return what ``/metrics`` tells of a group's letters."""
    with urlopen(f"http://{process.served['http'][0]}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = (
        re.fullmatch(rf'kafka_server_sharegroupmetrics_deadletterqueue(\w+){{group="{group}"}} (\S+)', line)
        for line in lines
    )
    return {each[1]: float(each[2]) for each in found if each is not None}


def test_a_queue_is_made_if_that_is_allowed_and_tells_only_where_records_lie(
    letters_broker: BrokerProcess,
) -> None:
    address, name = letters_broker.address, "errors_deadletterqueue_auto_create_topics_enable"
    (node_id,) = admin_of(address).list_topics(timeout=PATIENCE_S).brokers
    configure(address, "made", "dlq.made")
    with Wire(letters_broker.host_and_port) as wire:
        asking = Asking(wire, "made")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 3, [3])) == E.NONE
        until(lambda: asking.at("made", 0) == [(4, 6)], lambda: asking.at("made", 0))
        assert letters(address, "dlq.made") == []
        alter(address, ResourceType.BROKER, str(node_id), **{name: "true"})
        assert asking.judged(2, (4, 9, [3, 1, 3, 0, 3, 3])) == E.NONE
        until(lambda: asking.at("made", 0) == [(10, 0)], lambda: asking.at("made", 0))
        alter(address, ResourceType.BROKER, str(node_id), **{name: "false"})
    found = letters(address, "dlq.made")
    assert [(each.key, each.value, each.own) for each in found] == [(None, None, [])] * 4
    assert [each.source for each in found] == [(0, 4), (0, 6), (0, 8), (0, 9)], "a gap is no letter"
    resource = ConfigResource(ResourceType.TOPIC, "dlq.made")
    admin = admin_of(address)
    configs = admin.describe_configs([resource])[resource].result()
    assert configs["errors.deadletterqueue.group.enable"].value == "true"
    assert any("there is no topic" in line for line in letters_broker.log_lines())


@pytest.mark.parametrize(
    ("queue", "configs", "why"),
    [
        ("dlq.not-enabled", {}, "has not errors.deadletterqueue.group.enable=true"),
        ("another-prefix", {"errors_deadletterqueue_group_enable": "true"}, "does not start with dlq."),
        ("tenant/ns/dlq.foreign", {"errors_deadletterqueue_group_enable": "true"}, "another tenant's"),
        (
            "dlq.compacted",
            {"errors_deadletterqueue_group_enable": "true", "cleanup_policy": "compact"},
            "without key",
        ),
        (
            "dlq.tiny",
            {"errors_deadletterqueue_group_enable": "true", "max_message_bytes": "80"},
            "the topic takes 80",
        ),
    ],
)
def test_what_cannot_be_a_queue_gets_nothing_and_holds_nobody_up(
    letters_broker: BrokerProcess, queue: str, configs: dict[str, str], why: str
) -> None:
    address, group = letters_broker.address, f"of-{queue.rpartition('/')[2]}"
    make(address, queue, **configs)
    configure(address, group, queue)
    with Wire(letters_broker.host_and_port) as wire:
        asking = Asking(wire, group)
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 9, [3])) == E.NONE
        until(lambda: asking.at(group, 0) == [(10, 0)], lambda: asking.at(group, 0))
    assert letters(address, queue) == []
    assert any(f"share group {group} " in line and why in line for line in letters_broker.log_lines())


def test_locks_that_end_too_often_make_letters_also_without_the_member(letters_broker: BrokerProcess) -> None:
    address = letters_broker.address
    make_queue(address, "dlq.locks")
    configure(address, "locks", "dlq.locks", share_delivery_count_limit="2")
    with Wire(letters_broker.host_and_port) as wire:
        asking = Asking(wire, "locks")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert given(asking.fetch(1, max_wait_ms=PATIENCE_S * 1000, min_bytes=1)) == [(0, 9, 2)]
        # It goes: what it holds it has had often enough.
    until(lambda: len(letters(address, "dlq.locks")) == RECORDS, lambda: letters(address, "dlq.locks"))
    found = letters(address, "dlq.locks")
    assert {(each.told["message"], each.told["delivery.count"]) for each in found} == {(TOO_OFTEN, "2")}
    assert [each.source[1] for each in found] == list(range(RECORDS))


def test_what_is_too_large_for_the_queue_comes_without_its_content(letters_broker: BrokerProcess) -> None:
    address = letters_broker.address
    make(address, "large")
    make_queue(address, "dlq.large", max_message_bytes="3000")
    configure(address, "large", "dlq.large", errors_deadletterqueue_copy_record_enable="true")
    producer = Producer({"bootstrap.servers": address, "linger.ms": 100})
    for number in range(60):
        producer.produce("large", key=b"%d" % number, value=b"x" * (100 if number % 2 else 5000))
    assert producer.flush(PATIENCE_S) == 0
    work(address, "large", "large", lambda number, times: AcknowledgeType.REJECT, 60)
    until(lambda: len(letters(address, "dlq.large")) == 60, lambda: len(letters(address, "dlq.large")))
    found = {each.source[1]: each for each in letters(address, "dlq.large")}
    assert [found[at].value for at in range(60)] == [b"x" * 100 if at % 2 else None for at in range(60)]


def test_a_queue_may_keep_its_letters_as_messages_of_pulsars(letters_broker: BrokerProcess) -> None:
    address = letters_broker.address
    make_queue(address, "dlq.pulsar", entry_format="pulsar")
    configure(address, "pulsars", "dlq.pulsar", errors_deadletterqueue_copy_record_enable="true")
    with Wire(letters_broker.host_and_port) as wire:
        asking = Asking(wire, "pulsars")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 9, [3])) == E.NONE
        until(lambda: asking.at("pulsars", 0) == [(10, 0)], lambda: asking.at("pulsars", 0))
    found = letters(address, "dlq.pulsar")
    assert [(each.value, each.source[1]) for each in found] == [(b"%d" % at, at) for at in range(RECORDS)]


def stored(wire: Wire, asking: Asking) -> list[tuple[int, int, int]]:
    """Return the batches of the group's state, as they are kept."""
    rows = [reading.ReadStateData(topic_id=asking.topic_id, partitions=[reading.PartitionData(partition=0)])]
    answer = wire.ask(reading.ReadShareGroupStateRequest(group_id=asking.name, topics=rows))
    return [
        (each.first_offset, each.last_offset, each.delivery_state)
        for each in answer.results[0].partitions[0].state_batches
    ]


def test_what_was_given_up_before_a_crash_is_sent_after_it(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """The queue cannot be made until after the crash: its namespace is not there, and the broker tries again."""
    auto = ("--set", "errors.deadletterqueue.auto.create.topics.enable=true")
    given_settings = (*LETTERS, *auto, "--set", "auto.create.namespaces.enable")
    broker = start_broker(tmp_path / "data", *given_settings[:-1], "auto.create.namespaces.enable=false")
    configure(broker.address, "crash", "public/later/dlq.crash", share_delivery_count_limit="2")
    with Wire(broker.host_and_port) as wire:
        asking = Asking(wire, "crash")
        assert given(asking.fetch(0)) == [(0, 9, 1)]
        assert asking.judged(1, (0, 9, [3, 3, 1, 2, 2, 1, 1, 1, 1, 1])) == E.NONE
        assert given(asking.fetch(2)) == [(3, 4, 2)]
        assert asking.judged(3, (3, 4, [2])) == E.NONE
        assert stored(wire, asking) == [(0, 1, 3), (2, 2, 2), (3, 4, 3), (5, 9, 2)]
        assert asking.at("crash", 0)[0][0] == 0
        assert given(asking.fetch(4)) == [], "nobody is given what is on its way to the queue"
    broker.kill()
    broker = start_broker(tmp_path / "data", *given_settings[:-1], "auto.create.namespaces.enable=true")
    with Wire(broker.host_and_port) as wire:
        assert stored(wire, asking) == [(0, 1, 3), (2, 2, 2), (3, 4, 3), (5, 9, 2)]
        asking.wire = wire
        assert given(asking.fetch(0)) == []
        until(lambda: asking.at("crash", 0) == [(10, 0)], lambda: asking.at("crash", 0))
    found = letters(broker.address, "public/later/dlq.crash")
    assert [(each.source[1], each.told["message"]) for each in found] == [
        (0, REJECTED),
        (1, REJECTED),
        (3, TOO_OFTEN),
        (4, TOO_OFTEN),
    ]


def test_a_broker_is_killed_again_and_again_and_every_rejected_record_has_its_letter(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", *LETTERS)
    address = broker.address
    make(address, "work", SOURCES)
    make_queue(address, "dlq.work", QUEUES)
    configure(
        address,
        "crew",
        "dlq.work",
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="10",
    )
    many = 4 * NUMBERS  # a fast machine is through with fewer before the third kill
    fill(address, "work", many)
    with rejecting(address, "crew", "work") as rejected:
        for kill in range(1, 4):
            until(lambda kill=kill: len(rejected) > kill * NUMBERS // 8, lambda: len(rejected))  # type: ignore[misc]
            broker.kill()
            broker = start_broker(tmp_path / "data", *LETTERS, kafka=address)
        assert len(rejected) < many, "there was nothing left to do"
        until(lambda: lag(address, "crew", "work") == 0, lambda: lag(address, "crew", "work"))
    found = Counter(int(each.key) for each in letters(address, "dlq.work"))
    assert set(found) == set(range(many))
    assert found.total() < 1.5 * many, (
        "letters come again only where the broker was killed between two writes"
    )
