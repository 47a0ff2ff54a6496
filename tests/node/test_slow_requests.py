"""What took long is in the log with its phases and its client; what waits because its client wants it to is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.base.errors import InvalidConfig
from magnetar.kafka.slow_requests import NEVER_S, thresholds
from magnetar.wire.kafka.messages import ApiKey
from tests.process import BrokerProcess


def slow(broker: BrokerProcess) -> list[dict[str, Any]]:
    told = [json.loads(each) for each in broker.log_lines()]
    return [each for each in told if each["logger"] == "magnetar.slow"]


def magnetar(*words: str, broker: BrokerProcess) -> str:
    """Return what a command says of the broker."""
    command = (Path(sys.executable).with_name("magnetar"), *words, "-b", broker.address)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_slow_request_is_told_and_one_that_waits_is_not(tmp_path: Path) -> None:
    given = ("--set", "slow.request.ms=CreateTopics:1,*:1500", "--set", "log.format=json")
    with BrokerProcess(tmp_path / "data", *given) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "client.id": "console"})
        for done in admin.create_topics([NewTopic(f"t{each}", 20) for each in range(50)]).values():
            done.result(30)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "g",
                "fetch.wait.max.ms": 3000,
                "fetch.min.bytes": 1000,
            }
        )
        consumer.subscribe(["t0"])
        assert consumer.poll(8) is None
        (line,) = slow(broker)
        assert (line["api"], line["client"], line["address"]) == ("CreateTopics", "console", "127.0.0.1")
        assert line["software"].startswith("confluent-kafka-python")
        assert line["ms"] >= line["handler_ms"] + line["queue_ms"] - 1 > 0
        assert line["request"] > 0

        # Levels are changed while it runs, as by Kafka's own tools.
        done = magnetar("config", "alter", "--loggers", "magnetar.slow=ERROR", broker=broker)
        assert "ERROR" in done
        for each in admin.create_topics([NewTopic(f"u{each}", 20) for each in range(50)]).values():
            each.result(30)
        assert len(slow(broker)) == 1
        consumer.close()


def test_thresholds_are_for_all_apis_or_for_one() -> None:
    found = thresholds(["Produce:500", "fetch:0", "1000"])
    assert found[ApiKey.PRODUCE] == 0.5
    assert found[ApiKey.FETCH] == NEVER_S
    assert found[ApiKey.METADATA] == 1.0
    assert found[ApiKey.JOIN_GROUP] == NEVER_S
    assert thresholds(["JoinGroup:7000"])[ApiKey.JOIN_GROUP] == 7.0
    assert thresholds(["JoinGroup:7000"])[ApiKey.FETCH] == NEVER_S


@pytest.mark.parametrize("word", ["soon", "Produce:", "Produce:-1", "Prodcue:5", "1.5"])
def test_what_is_no_threshold_is_refused_in_words(word: str) -> None:
    with pytest.raises(InvalidConfig, match=r"slow\.request\.ms"):
        thresholds([word])
