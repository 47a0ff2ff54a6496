"""The page of limits has the numbers of the code, and what it says happens beyond them is what clients see."""

from __future__ import annotations

import re

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing import Broker
from tools import limits_page
from tools.limits_page import PAGE, TABLES, page, shown


def test_the_page_has_the_limits_of_the_code() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text(), "run python -m tools.limits_page"


def test_a_limit_that_changes_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = list(TABLES["topics"])
    topics[0] = limits_page.Limit(topics[0].what, topics[0].beyond, fixed=250)
    monkeypatch.setitem(TABLES, "topics", tuple(topics))
    assert page(PAGE.read_text()) != PAGE.read_text()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (64 << 20, "bytes", "64 MiB"),
        (1048588, "bytes", "1,048,588 bytes"),
        (604_800_000, "ms", "7 days"),
        (86_400_000, "ms", "24 hours"),
        (900_000, "ms", "15 minutes"),
        (10080, "minutes", "7 days"),
        (50_000, "", "50,000"),
    ],
)
def test_numbers_are_shown_as_people_read_them(value: int, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def limit(table: str, what: str) -> tuple[int, str]:
    """Return a row of the page: the number and what happens beyond it."""
    row = re.search(
        rf"^\| {re.escape(what)} \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert row, f"{what} is not in the table of {table}"
    units = {"MiB": 1 << 20, "KiB": 1 << 10}
    number, _, unit = row[1].partition(" ")
    return int(number.replace(",", "")) * units.get(unit, 1), row[2]


@pytest.mark.slow
def test_what_is_beyond_a_limit_is_refused_as_the_page_says() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        def refused(topic: NewTopic) -> str:
            with pytest.raises(KafkaException) as caught:
                admin.create_topics([topic])[topic.topic].result()
            error: KafkaError = caught.value.args[0]
            return str(error.name())

        longest, error = limit("topics", "characters of a topic's name")
        admin.create_topics([NewTopic("t" * longest, 1)])["t" * longest].result()
        assert error == "INVALID_TOPIC_EXCEPTION"
        assert refused(NewTopic("t" * (longest + 1), 1)) == "TOPIC_EXCEPTION"  # librdkafka's name of it

        most, error = limit("topics", "new partitions in one request")
        assert refused(NewTopic("wide", most + 1)) == error

        largest, error = limit("messages", "record batch of a Kafka producer")
        errors: list[str] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 10 << 20})
        producer.produce("big", b"x" * largest, on_delivery=lambda error, _: errors.append(error.name()))
        producer.flush()
        assert (error, errors) == (
            "MESSAGE_TOO_LARGE",
            ["MSG_SIZE_TOO_LARGE"],
        )  # the same, by librdkafka's name

        largest, status = limit("connections", "body of an HTTP request")
        answer = httpx.put(f"{broker.http_url}/admin/v2/tenants/acme", content=b"x" * (largest + 1))
        assert status == f"status {answer.status_code}"
