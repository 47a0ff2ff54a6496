"""The tools of an operator find what they ask for, whichever worker has it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from tests.workers.house import PARTITIONS, House
from tests.workers.load import KafkaLoad, stored

pytestmark = [pytest.mark.slow]
MAGNETAR = str(Path(sys.executable).parent / "magnetar")


def run(*arguments: str) -> str:
    done = subprocess.run([MAGNETAR, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tools_and_metrics_tell_of_all_workers(tmp_path: Path) -> None:
    with House(tmp_path / "data", 2) as house:
        house.make_topic("t")
        house.until_shared("t")
        load = KafkaLoad(house.address, "t", PARTITIONS)
        load.wait_for_more(800)
        load.end()
        assert stored(house.address, "t", PARTITIONS)[0]
        at = ("-b", house.address)
        told = json.loads(run("topic", "describe", "t", "--json", *at))
        ends = {each["partition"]: each["next"] for each in told["partitions"]}
        assert sum(ends.values()) == load.count()
        for partition in range(PARTITIONS):
            run("explain", f"t-{partition}@0", "--data", str(house.data))
            assert json.loads(run("ledger", "list", f"t-{partition}", "--json", "--data", str(house.data)))
        run("why", "t-0", "--data", str(house.data))
        run("topic", "compact", "t", "--data", str(house.data))
        url = house.served["http"][0]
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            text = answer.read().decode()
        lines = [line for line in text.splitlines() if line.startswith("kafka_log_log_logendoffset")]
        assert len(lines) >= PARTITIONS
        assert {line.partition('worker="')[2][0] for line in lines} == {"0", "1"}
        heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(heads) == len(set(heads))
    assert "Traceback" not in house.log.read_text()


def test_applications_ask_for_as_many_replicas_as_there_are_brokers(tmp_path: Path) -> None:
    """What Streams, Connect and many applications do with the brokers of a cluster; a partition still has one owner."""
    house = House(tmp_path / "data", 3)
    with house:
        wanted = [
            NewTopic("three", num_partitions=6, replication_factor=3),
            NewTopic("placed", num_partitions=2, replica_assignment=[[0, 1], [1, 2]]),
        ]
        for made in house.admin.create_topics(wanted).values():
            made.result(30)
        load = KafkaLoad(house.address, "three", 6)
        load.wait_for_more(200)
        load.end()
        assert stored(house.address, "three", 6)[0]
        for partition in house.admin.list_topics("three", timeout=30).topics["three"].partitions.values():
            assert partition.error is None
            assert partition.replicas == partition.isrs == [partition.leader]
        for impossible, message in (
            (NewTopic("four", num_partitions=1, replication_factor=4), "only 3 broker"),
            (NewTopic("uneven", num_partitions=2, replica_assignment=[[0, 1], [1]]), "not consistent"),
        ):
            (refused,) = house.admin.create_topics([impossible]).values()
            with pytest.raises(KafkaException, match=message):
                refused.result(30)
