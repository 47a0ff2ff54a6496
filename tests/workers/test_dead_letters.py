"""Dead letters of share groups whose queue's partitions are led by another worker than the source's."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType

from tests.shares.test_dead_letters import (
    LETTERS,
    NUMBERS,
    SOURCES,
    configure,
    fill,
    letters,
    make_queue,
    rejecting,
    work,
)
from tests.shares.test_share_consumers import until
from tests.workers.house import PARTITIONS, House

pytestmark = [pytest.mark.slow]


def sources(address: str, queue: str) -> set[tuple[int, int]]:
    return {each.source for each in letters(address, queue)}


def test_letters_go_to_whichever_worker_leads_the_queue_also_when_one_is_killed(tmp_path: Path) -> None:
    with House(tmp_path / "data", 2, *LETTERS) as house:
        address = house.address
        house.make_topic("work")
        house.until_shared("work")
        for number in itertools.count():  # where a topic lies is by its name
            queue = f"dlq.work{number}"
            make_queue(address, queue, PARTITIONS)
            until(
                lambda queue=queue: min(house.leaders(queue).values(), default=-1) >= 0,
                lambda: house.leaders("work"),
            )  # type: ignore[misc]
            here, there = house.leaders("work"), house.leaders(queue)
            if {here[at] == there[at] for at in range(SOURCES)} == {True, False}:
                break
        configure(
            address,
            "crew",
            queue,
            errors_deadletterqueue_copy_record_enable="true",
            share_delivery_count_limit="10",
        )
        fill(address, "work")
        work(address, "crew", "work", lambda number, times: AcknowledgeType.REJECT, NUMBERS)
        until(lambda: len(sources(address, queue)) == NUMBERS, lambda: len(sources(address, queue)))
        fill(address, "work")
        # The member stays: what it said to the worker that was killed may have to be said again, and letters that were
        # not written by then wait for somebody who asks for the partition.
        with rejecting(address, "crew", "work") as rejected:
            until(lambda: len(rejected) > NUMBERS // 10, lambda: len(rejected))
            house.until_again(2, house.send(2, signal.SIGKILL))
            until(lambda: len(sources(address, queue)) == 2 * NUMBERS, lambda: len(sources(address, queue)))
        found = letters(address, queue)
        assert len(found) < 2.5 * NUMBERS
        assert all(each.partition == each.source[0] for each in found)
        assert house.end() == 0
    assert "Traceback" not in house.log.read_text()
