"""A query's lag, as Kafka's own tool shows it, and what a second query with the same name meets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from magnetar.client.settings import settings_of
from magnetar.pipeline.options import TopicPartition as Partition
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.progress_group import ProgressGroup, ProgressRefused
from tests.pipeline.topics import create
from tests.process import BrokerProcess

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / "compat" / "kafka-tools.sh"
SESSION_MS = 1500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that forgets silent members quickly."""
    settings = ("group.initial.rebalance.delay.ms=0", f"group.min.session.timeout.ms={SESSION_MS}")
    arguments = [part for setting in settings for part in ("--set", setting)]
    with BrokerProcess(tmp_path_factory.mktemp("lag") / "data", *arguments) as process:
        yield process


def group(broker: BrokerProcess, name: str) -> ProgressGroup:
    settings = settings_of({"bootstrap.servers": broker.address, "client.id": "a-query"})
    return ProgressGroup(settings, name, session_timeout_ms=SESSION_MS)


def committed(broker: BrokerProcess, name: str, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.address})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(20)
    return {each.partition: each.offset for each in asked.topic_partitions if each.topic == topic}


def members(broker: BrokerProcess, name: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": broker.address})
    return [each.client_id for each in admin.describe_consumer_groups([name])[name].result(20).members]


def test_offsets_are_committed_by_a_member_that_leaves_at_the_end(broker: BrokerProcess) -> None:
    create(broker, "shown", 2)
    progress = group(broker, "shown-group")
    progress.report({Partition("shown", 0): 0, Partition("shown", 1): 0})
    progress.report({Partition("shown", 0): 7, Partition("shown", 1): 9})
    assert committed(broker, "shown-group", "shown") == {0: 7, 1: 9}
    assert members(broker, "shown-group") == ["a-query"]
    progress.close()
    assert members(broker, "shown-group") == []
    assert committed(broker, "shown-group", "shown") == {0: 7, 1: 9}


def test_a_second_query_is_refused_and_the_first_goes_on(broker: BrokerProcess) -> None:
    create(broker, "twice")
    first, second = group(broker, "twice-group"), group(broker, "twice-group")
    first.report({Partition("twice", 0): 1})
    with pytest.raises(
        ProgressRefused, match=r"'twice-group' has another member: a-query at .*progressGroup"
    ):
        second.report({Partition("twice", 0): 99})
    first.report({Partition("twice", 0): 2})
    assert committed(broker, "twice-group", "twice") == {0: 2}
    first.close()
    second.close()


def test_nobody_commits_past_the_query(broker: BrokerProcess) -> None:
    create(broker, "alone")
    progress = group(broker, "alone-group")
    progress.report({Partition("alone", 0): 1})
    stranger = Consumer({"bootstrap.servers": broker.address, "group.id": "alone-group"})
    with pytest.raises(Exception, match=r"UNKNOWN_MEMBER_ID|Unknown member"):
        stranger.commit(offsets=[TopicPartition("alone", 0, 50)], asynchronous=False)
    stranger.close()
    assert committed(broker, "alone-group", "alone") == {0: 1}
    progress.close()


def test_one_that_was_silent_too_long_finds_its_place_taken(broker: BrokerProcess) -> None:
    create(broker, "silent")
    silent, next_one = group(broker, "silent-group"), group(broker, "silent-group")
    silent.report({Partition("silent", 0): 1})
    silent._ended.set()  # no more heartbeats, as of a process that is stopped
    next_one.report({Partition("silent", 0): 5})  # waits until the other is forgotten
    with pytest.raises(ProgressRefused):
        silent.report({Partition("silent", 0): 2})
    assert committed(broker, "silent-group", "silent") == {0: 5}
    next_one.close()


def test_a_broker_that_is_away_does_not_stop_the_query(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", "--set", f"group.min.session.timeout.ms={SESSION_MS}")
    create(broker, "away")
    progress = group(broker, "away-group")
    progress.report({Partition("away", 0): 1})
    broker.kill()
    with pytest.warns(UserWarning, match="not visible in group 'away-group'"):
        progress.report({Partition("away", 0): 2})
    arguments = ("--set", f"group.min.session.timeout.ms={SESSION_MS}")
    broker = start_broker(tmp_path / "data", *arguments, kafka=broker.address)
    progress.report({Partition("away", 0): 3})
    assert committed(broker, "away-group", "away") == {0: 3}
    progress.close()


def test_a_batch_has_no_progress() -> None:
    with pytest.raises(ValueError, match="progressGroup"):
        parse_options({"path": "/x", "subscribe": "t", "progressGroup": "g"}, streaming=False)


def lag(broker: BrokerProcess, name: str) -> dict[int, tuple[int, int, int]]:
    """Return what Kafka's own tool says: partition -> (current offset, log end offset, lag)."""
    command = ["bash", str(TOOL), "consumer-groups", "--bootstrap-server", broker.address, "--describe"]
    told = subprocess.run([*command, "--group", name], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in told.splitlines() if line.startswith(name)]
    return {int(row[2]): (int(row[3]), int(row[4]), int(row[5])) for row in rows}


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("mvn") is None and "KAFKA_LIBS" not in os.environ, reason="no Maven")
def test_kafkas_own_tool_sees_the_lag_go_to_zero(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "lagging", 2)
    producer = Producer({"bootstrap.servers": broker.address})

    def produce(count: int) -> None:
        for i in range(count):
            producer.produce("lagging", str(i), partition=i % 2)
        assert producer.flush(30) == 0

    def run() -> None:
        stream = (
            spark.readStream.format("magnetar")
            .option("subscribe", "lagging")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .option("progressGroup", "lagging-group")
            .load(str(broker.data))
        )
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    produce(100)
    run()
    assert lag(broker, "lagging-group") == {0: (50, 50, 0), 1: (50, 50, 0)}
    produce(30)
    assert lag(broker, "lagging-group") == {0: (50, 65, 15), 1: (50, 65, 15)}
    run()
    assert lag(broker, "lagging-group") == {0: (65, 65, 0), 1: (65, 65, 0)}
