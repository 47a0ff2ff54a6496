"""What is done for all topics and groups each second: 20,000 of them, which are work for one client to make."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.pulsar import PREY, producer, stored
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, PulsarWire, frame, request
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_AT_ONCE = 200
COUNT = 20_000


def commits(first: int, count: int) -> bytes:
    """Return commits of so many groups of one partition."""
    said = []
    for number in range(first, first + count):
        place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="prey", partitions=[place])
        message = OffsetCommitRequest(
            group_id=f"group{number}", generation_id_or_member_epoch=-1, topics=[topic]
        )
        said.append(request(message, 8))
    return b"".join(said)


def groups(target: Target, _: Any) -> None:
    """20,000 groups commit, and become cursors."""
    with KafkaWire(target) as client:
        for first in range(0, COUNT, _AT_ONCE):
            client.send(commits(first, _AT_ONCE))
            for _ in range(_AT_ONCE):
                client.frame()
    time.sleep(20)


def opened(target: Target) -> None:
    """Prepare 20,000 open topics."""
    with PulsarWire(target) as client:
        for first in range(0, COUNT, _AT_ONCE):
            client.send(b"".join(frame(producer(f"{PREY}{n}", n)) for n in range(first, first + _AT_ONCE)))
            for _ in range(_AT_ONCE):
                client.hear()


def watch(target: Target, _: Any) -> None:
    time.sleep(30)


ATTACKS = (
    Attack("20,000 groups become cursors", stored, groups),
    Attack("20,000 open topics", opened, watch),
)
