"""A share group whose coordinator, partitions and states are different workers', while each of these is killed."""

from __future__ import annotations

import base64
import itertools
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicCollection, Uuid

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from magnetar.wire.kafka.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from magnetar.wire.kafka.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from tests.hostile.client import Wire
from tests.shares.test_share_consumers import QUICK, RECORDS, Worker, check_none_came_again, produce, until
from tests.workers.house import PARTITIONS, House

pytestmark = [pytest.mark.slow]
_NOT_YET = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NON_EMPTY_GROUP,  # a member that could not say that it goes stays until its session ends
}


def ask_coordinator(address: str, group: str, request: Message, code_of: Callable[[Any], int]) -> Any:
    """Return the answer of whoever coordinates a group, as a tool gets it that asks again while it moves."""
    host, _, port = address.rpartition(":")
    until_s = time.monotonic() + 60
    while True:
        with Wire((host, int(port))) as wire:
            (found,) = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators
        code = found.error_code
        if not code:
            try:
                with Wire((found.host, found.port)) as wire:
                    answer = wire.ask(request)
            except OSError:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # it was killed
            else:
                code = code_of(answer)
        if code not in _NOT_YET:
            assert not code, ErrorCode(code)
            return answer
        assert time.monotonic() < until_s, ErrorCode(code)
        time.sleep(0.05)


def offsets(address: str, group: str) -> dict[int, tuple[int, int]]:
    """Return where a group is in each partition of the topic that it reads, and how much is left."""
    answer = ask_coordinator(
        address,
        group,
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
        ),
        lambda answer: answer.groups[0].error_code,
    )
    return {
        row.partition_index: (row.start_offset, row.lag)
        for topic in answer.groups[0].topics
        for row in topic.partitions
    }


def left(address: str, group: str) -> int:
    """Return how many records are left for a group; -1 while not everybody says so."""
    found = offsets(address, group)
    return (
        -1
        if len(found) < PARTITIONS or min(found.values(), key=lambda row: row[1])[1] < 0
        else sum(lag for _, lag in found.values())
    )


def states_elsewhere(house: House, group: str, topic: str) -> int:
    """Return how many partitions of a topic are led by another worker than the one that keeps their state."""
    (topic_id,) = house.admin.describe_topics(TopicCollection([topic])).values()
    id_ = base64.urlsafe_b64encode(uuid_bytes(topic_id.result().topic_id)).rstrip(b"=").decode()
    keys = [f"{group}:{id_}:{index}" for index in range(PARTITIONS)]
    host, _, port = house.address.rpartition(":")
    with Wire((host, int(port))) as wire:
        found = wire.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=keys)).coordinators
    keepers = {each.key: each.node_id for each in found}
    leaders = house.leaders(topic)
    return sum(keepers[key] != leaders[index] for index, key in enumerate(keys))


def uuid_bytes(uuid: Uuid) -> bytes:
    most, least = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
    return struct.pack(">qq", most, least)


def test_a_share_group_works_across_workers_also_when_some_are_killed(tmp_path: Path) -> None:
    with House(tmp_path / "data", 3, *QUICK) as house:
        house.make_topic("spread")
        house.until_shared("spread")
        for number in itertools.count():  # a topic has an id by chance, and its states lie by that
            topic = f"work{number}"
            house.make_topic(topic)
            if states_elsewhere(house, "crew", topic) >= 3:
                break
        thirds = [range(RECORDS)[at::3] for at in range(3)]
        produce(house.address, topic, thirds[0], PARTITIONS)
        crew = [Worker(house.address, "crew", topic) for _ in range(2)]

        def done() -> set[int]:
            return set().union(*(worker.done for worker in crew))

        for worker in (1, 2):
            before = len(done())
            until(lambda before=before: len(done()) > before + RECORDS // 10, lambda: len(done()))
            house.until_again(worker, house.send(worker, signal.SIGKILL))
            killed = len(done())
            assert killed < RECORDS, "there was nothing left to do"
            produce(
                house.address, topic, thirds[worker], PARTITIONS
            )  # so that there is, however long it took
        until(lambda: left(house.address, "crew") == 0, lambda: (offsets(house.address, "crew"), len(done())))
        for each in crew:
            each.end()
        had = {number for each in crew for _, numbers in each.got for number in numbers}
        assert had == set(range(RECORDS))
        assert len(done()) > RECORDS * 0.8
        check_none_came_again(crew)
        move(house.address, topic)
        assert house.end() == 0
    assert "Traceback" not in house.log.read_text()


def move(address: str, topic: str) -> None:
    """Move an empty group in all partitions, and have it forget them."""
    rows = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=index)
        for index in range(PARTITIONS)
    ]
    asked = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=rows)
    answer = ask_coordinator(
        address,
        "crew",
        AlterShareGroupOffsetsRequest(group_id="crew", topics=[asked]),
        lambda answer: answer.error_code,
    )
    assert [row.error_code for row in answer.responses[0].partitions] == [0] * PARTITIONS
    size = RECORDS // PARTITIONS
    assert offsets(address, "crew") == {index: (index, size - index) for index in range(PARTITIONS)}
    ask_coordinator(
        address,
        "crew",
        DeleteShareGroupOffsetsRequest(
            group_id="crew", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        ),
        lambda answer: answer.error_code or answer.responses[0].error_code,
    )
    assert offsets(address, "crew") == {}
