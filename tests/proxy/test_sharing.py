"""Share groups through the proxy: stock consumers, whose records lie with several brokers, by volume."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from magnetar.wire.kafka.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from tests.hostile.client import Wire
from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess
from tests.proxy.test_kafka import PARTITIONS, RECORDS, make
from tests.shares.test_answers import check_two_connections
from tests.shares.test_share_consumers import Worker, check_none_came_again, until

SETTINGS = (
    "share.auto.offset.reset=earliest",
    "group.share.heartbeat.interval.ms=500",
    "group.share.assignment.interval.ms=0",
    "group.share.record.lock.duration.ms=5000",
    "group.share.min.record.lock.duration.ms=5000",
)


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(home, 3, *SETTINGS) as made:
        yield made


def fill(proxy: ProxyProcess, topic: str, records: int) -> None:
    make(AdminClient({"bootstrap.servers": proxy.kafka}), topic)
    producer = Producer({"bootstrap.servers": proxy.kafka, "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def test_members_work_through_partitions_of_all_brokers(proxy: ProxyProcess) -> None:
    fill(proxy, "work", RECORDS)
    crew = [Worker(proxy.kafka, "crew", "work") for _ in range(3)]

    def done() -> set[int]:
        return set().union(*(each.done for each in crew))

    until(lambda: len(done()) > RECORDS // 10, lambda: [each.failures for each in crew])
    crew[0].kill()  # what it held comes again, at once
    held = {number for _, numbers in crew[0].got for number in numbers}
    until(lambda: len(done() | held) == RECORDS, lambda: [(len(each.done), each.failures) for each in crew])
    until(
        lambda: {n for each in crew for _, ns in each.got for n in ns} == set(range(RECORDS)),
        lambda: len(done()),
    )
    for each in crew[1:]:
        each.end()
        assert not each.failures
    check_none_came_again(crew)


def test_what_a_member_releases_comes_again_and_what_it_rejects_does_not(proxy: ProxyProcess) -> None:
    fill(proxy, "judged", 120)
    member = ShareConsumer(
        {"bootstrap.servers": proxy.kafka, "group.id": "judges", "share.acknowledgement.mode": "explicit"}
    )
    member.subscribe(["judged"])
    accepted: dict[int, int] = {}
    seen: dict[int, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(accepted) < 80 and time.monotonic() < deadline:
        for message in member.poll(0.5):
            assert message.error() is None
            number = int(message.value())
            seen[number] = seen.get(number, 0) + 1
            if number % 3 == 0:
                member.acknowledge(message, AcknowledgeType.REJECT)
            elif number % 3 == 1 and seen[number] == 1:
                member.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                member.acknowledge(message)
                accepted[number] = message.delivery_count()
        assert all(error is None for error in member.commit_sync(PATIENCE_S).values())
    member.close()
    assert sorted(seen) == list(range(120))
    assert {number: times for number, times in seen.items() if times > 1} == {
        number: 2 for number in range(120) if number % 3 == 1
    }


def test_who_wants_no_bytes_gets_no_records(proxy: ProxyProcess) -> None:
    fill(proxy, "no-bytes", 40)
    settings = {"bootstrap.servers": proxy.kafka, "group.id": "no-bytes"}
    nothing = ShareConsumer({**settings, "fetch.max.bytes": 0, "message.max.bytes": 1000})
    nothing.subscribe(["no-bytes"])
    assert [message for _ in range(6) for message in nothing.poll(0.5)] == []
    nothing.close()
    member = ShareConsumer(settings)
    member.subscribe(["no-bytes"])
    found: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < 40 and time.monotonic() < deadline:
        found |= {int(each.value()) for each in member.poll(0.5)}
    assert found == set(range(40))
    member.close()


def test_a_member_acknowledges_on_another_connection(proxy: ProxyProcess) -> None:
    host, _, port = proxy.kafka.rpartition(":")
    check_two_connections((host, int(port)), "on-two")


@pytest.mark.parametrize("kind", ["fetch", "forget", "acknowledge"])
def test_more_rows_than_a_session_has_partitions_are_refused(proxy: ProxyProcess, kind: str) -> None:
    host, _, port = proxy.kafka.rpartition(":")
    many = range(10_001)
    topic_id = uuid.uuid4().bytes
    with Wire((host, int(port))) as wire:
        member: dict[str, Any] = {"group_id": "rows", "member_id": str(uuid.uuid4())}
        asks: dict[str, Any] = {
            "max_wait_ms": 10,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
        }
        begun = wire.ask(ShareFetchRequest(**member, **asks, share_session_epoch=0))
        assert begun.error_code == ErrorCode.NONE
        rows = [FetchPartition(partition_index=number) for number in many]
        acknowledged = [AcknowledgePartition(partition_index=number) for number in many]
        requests: dict[str, Message] = {
            "fetch": ShareFetchRequest(
                **member,
                **asks,
                share_session_epoch=1,
                topics=[FetchTopic(topic_id=topic_id, partitions=rows)],
            ),
            "forget": ShareFetchRequest(
                **member,
                **asks,
                share_session_epoch=1,
                forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=list(many))],
            ),
            "acknowledge": ShareAcknowledgeRequest(
                **member,
                share_session_epoch=1,
                topics=[AcknowledgeTopic(topic_id=topic_id, partitions=acknowledged)],
            ),
        }
        assert wire.ask(requests[kind]).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_member_with_a_nul_in_its_name_is_refused(proxy: ProxyProcess) -> None:
    """That is the broker's own."""
    host, _, port = proxy.kafka.rpartition(":")
    with Wire((host, int(port))) as wire:
        told = wire.ask(ShareFetchRequest(group_id="rows", member_id="me\0", share_session_epoch=0))
        assert told.error_code == ErrorCode.INVALID_REQUEST
