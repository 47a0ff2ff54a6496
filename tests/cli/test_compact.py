"""``magnetar topic compact`` against a running broker."""

from __future__ import annotations

import pytest

from tests.cli.operator import Operator
from tests.process import BrokerProcess


@pytest.fixture
def operator(broker: BrokerProcess) -> Operator:
    return Operator(broker.address)


def produce(operator: Operator, topic: str, count: int = 100) -> None:
    lines = "".join(f"k{number % 10}\tv{number}\n" for number in range(count))
    operator.ok("produce", topic, "-K", r"\t", "-p", "0", stdin=lines)


def test_older_records_make_room_when_the_command_comes_back(operator: Operator) -> None:
    topic = "cli-compact"
    alone = "min.cleanable.dirty.ratio=1"  # the cleaner, by itself, never has a turn before us
    operator.ok("topic", "create", topic, "-p", "2", "-c", "cleanup.policy=compact", "-c", alone)
    produce(operator, topic)
    told = operator.run("topic", "compact", topic, "--json").value
    assert told["replaces"] is True
    assert [(row["status"], row["removed"], row["waiting_size"]) for row in told["partitions"]] == [
        ("SUCCESS", 90, 0),
        ("SUCCESS", 0, 0),
    ]
    assert operator.ok("consume", topic, "-e", "-f", "%k=%s ") == "".join(
        f"k{n}=v{90 + n} " for n in range(10)
    )
    assert operator.run("topic", "compact", topic, "--status", "--json").value == told


def test_the_history_stays_where_the_policy_says_delete(operator: Operator) -> None:
    topic = "cli-compact-not"
    operator.ok("topic", "create", topic, "-p", "1")
    produce(operator, topic)
    said = operator.ok("topic", "compact", topic)
    assert "the history stays" in said
    assert "SUCCESS" in said
    assert len(operator.ok("consume", topic, "-e").splitlines()) == 100


def test_not_waiting_and_asking_later(operator: Operator) -> None:
    topic = "cli-compact-later"
    operator.ok("topic", "create", topic, "-p", "1")
    produce(operator, topic, 2000)
    assert "RUNNING" in operator.ok("topic", "compact", topic, "--no-wait")

    def status() -> str:
        (row,) = operator.run("topic", "compact", topic, "--status", "--json").value["partitions"]
        return str(row["status"])

    operator.until(lambda: status() == "SUCCESS")


def test_what_is_refused(operator: Operator) -> None:
    for words, status, says in (
        ("cli-nobody", 1, "topic list"),
        ("cli-nobody --status --no-wait", 2, "--no-wait"),
    ):
        ran = operator.run("topic", "compact", *words.split())
        assert (ran.status, ran.out) == (status, "")
        assert says in ran.err
