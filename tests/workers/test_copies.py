"""Transactions whose partitions, offsets and coordinators are spread over workers, some of which are killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transactions.copying import Copier, end, read_until, wait_for_more
from tests.workers.house import PARTITIONS, House
from tests.workers.load import KafkaLoad

pytestmark = [pytest.mark.slow]


def test_records_are_copied_exactly_once_though_workers_are_killed(
    tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    with House(tmp_path / "data", 3, "--set", "worker.session.ms=3000") as house:
        for topic in ("from", "to"):
            house.make_topic(topic)
            house.until_shared(topic)
        load = KafkaLoad(house.address, "from", PARTITIONS)
        copiers = [Copier(house.address, "from", "to", number) for number in range(3)]
        for each in copiers:
            each.start()
        for worker in (1, 2, 3):
            load.wait_for_more(2000)
            wait_for_more(copiers, 10)
            before = house.send(worker, signal.SIGKILL)
            house.until_again(worker, before)
        load.wait_for_more(2000)
        load.end()
        found = read_until(house.address, "to", PARTITIONS, load.count(), copiers)
        end(copiers)
        for number, each in enumerate(copiers):
            told = (each.committed, each.aborted, len(each.errors))
            record_testsuite_property(f"copier {number}: committed, aborted, errors", told)
        assert [[int(value) for value in each] for each in found] == load.acknowledged
        assert sum(each.aborted for each in copiers) > 0  # one may have got no part, or hung
        assert "Traceback" not in house.log.read_text()
