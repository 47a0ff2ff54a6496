"""A store that is down, slow, refuses, or answers with half of it: told, tried again, and nobody else waits."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.offload.conftest import BUCKET, KEYS
from tests.offload.test_broker import PARTITIONS, consume, driver, ledgers, make, produce, until
from tests.process import BrokerProcess

RECORDS = 20_000


class Moody:
    """A proxy in front of an S3 server. ``mood`` says what becomes of requests: well, 500, 403, cut, slow or gone."""

    def __init__(self, upstream: str) -> None:
        self.mood = "well"
        self.spoiled = 0
        self.let_go = threading.Event()
        moody, where = self, urlsplit(upstream)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                mood = moody.mood
                if mood != "well":
                    moody.spoiled += 1
                if mood == "gone":
                    self.close_connection = True
                    return
                if mood == "slow":
                    moody.let_go.wait(120)
                if mood in ("500", "403"):
                    answer = b"<Error><Code>Spoiled</Code><Message>no</Message></Error>"
                    self.reply(int(mood), {}, answer, len(answer))
                    return
                upstream = http.client.HTTPConnection(where.hostname or "", where.port or 80)
                upstream.request(self.command, self.path, body, dict(self.headers))
                found = upstream.getresponse()
                data = found.read()
                length = int(found.headers.get("Content-Length") or len(data))
                cut = mood == "cut" and self.command == "GET" and len(data) > 1000
                self.reply(found.status, dict(found.headers), data[: len(data) // 2] if cut else data, length)
                self.close_connection = cut
                upstream.close()

            def reply(self, status: int, headers: dict[str, str], data: bytes, length: int) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in (
                        "content-length",
                        "connection",
                        "transfer-encoding",
                        "date",
                        "server",
                    ):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.let_go.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def moody(s3: Any) -> Iterator[Moody]:
    moody = Moody(s3.meta.endpoint_url)
    yield moody
    moody.close()


@pytest.fixture
def broker(tmp_path: Path, moody: Moody, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    settings = driver(
        "aws-s3",
        f"managed.ledger.offload.bucket={BUCKET}",
        f"managed.ledger.offload.prefix={tmp_path.name}",
        f"managed.ledger.offload.service.endpoint={moody.url}",
    )
    with BrokerProcess(tmp_path / "data", *settings) as broker:
        yield broker


@pytest.mark.slow
@pytest.mark.parametrize("mood", ["gone", "500", "403", "cut", "slow"])
def test_readers_wait_and_others_do_not(broker: BrokerProcess, moody: Moody, mood: str) -> None:
    make(broker, "there", remote_storage_enable="true", local_retention_ms="1")
    produce(broker, "there", RECORDS)
    with httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=60) as http:
        until(lambda: _gone(ledgers(http, "there")), broker)
    moody.mood = mood
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    consumer.assign([TopicPartition("there", each, 0) for each in range(PARTITIONS)])
    found: list[tuple[int, int, bytes, bytes]] = []
    # One that hangs is waited for; others are asked again and again.
    _take(consumer, found, until=lambda: moody.spoiled > (0 if mood == "slow" else 2))
    # Whoever reads and writes what is here is served as ever, while the store is as it is.
    make(broker, "here")
    produce(broker, "here", 3000)
    assert len(consume(broker, "here", 3000)) == 3000
    assert not found, "nothing is made up"
    moody.mood = "well"
    moody.let_go.set()
    _take(consumer, found, until=lambda: len(found) == RECORDS)
    consumer.close()
    for index in range(PARTITIONS):
        mine = [row for row in found if row[0] == index]
        assert [row[1] for row in mine] == list(range(len(mine))), "in order, each once"
    assert sorted(row[3][:8] for row in found) == [b"%08d" % number for number in range(RECORDS)]


def _take(consumer: Consumer, found: list[tuple[int, int, bytes, bytes]], *, until: Any) -> None:
    for _ in range(2400):
        if until():
            return
        for each in consumer.consume(1000, 0.05):
            if (error := each.error()) is not None:
                assert error.code() == KafkaError.UNKNOWN, error  # told, and asked again
                continue
            found.append((each.partition(), each.offset(), each.key(), each.value()))
    raise AssertionError(f"{len(found)} came")


def _gone(found: list[dict[str, Any]]) -> bool:
    full = [each for each in found if each["entries"]]
    return sum(each["properties"].get("local") == "false" for each in full) == len(full) - PARTITIONS


@pytest.mark.slow
def test_offloads_are_tried_again_and_told_in_words(broker: BrokerProcess, moody: Moody) -> None:
    moody.mood = "403"
    make(broker, "later", remote_storage_enable="true", local_retention_ms="1")
    produce(broker, "later", RECORDS)
    until(
        lambda: any(
            "Check the bucket's name, the keys and their rights" in line for line in broker.log_lines()
        ),
        broker,
    )
    with httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=60) as http:
        assert not any(each["offloaded"] for each in ledgers(http, "later"))
        before = consume(broker, "later", RECORDS)
        moody.mood = "cut"
        time.sleep(0.5)
        moody.mood = "well"
        until(lambda: _gone(ledgers(http, "later")), broker)
        assert consume(broker, "later", RECORDS) == before
        tries = [line for line in broker.log_lines() if "tiered storage failed" in line]
        assert tries
        assert "is tried again after" in tries[0]


@pytest.mark.slow
def test_pulsars_readers_go_on_when_it_is_back(broker: BrokerProcess, moody: Moody) -> None:
    make(broker, "there", remote_storage_enable="true", local_retention_ms="1")
    produce(broker, "there", RECORDS)
    with httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=60) as http:
        until(lambda: _gone(ledgers(http, "there")), broker)
    moody.mood = "500"
    client = pulsar.Client(broker.pulsar_url)
    name = "persistent://public/default/there-partition-0"
    reader = client.create_reader(name, pulsar.MessageId.earliest)
    with pytest.raises(pulsar.Timeout):
        reader.read_next(3000)
    assert moody.spoiled
    moody.mood = "well"
    found = [reader.read_next(60_000).data()[:8] for _ in range(len(range(0, RECORDS, PARTITIONS)))]
    assert found == [b"%08d" % number for number in range(0, RECORDS, PARTITIONS)]
    client.close()


def test_a_read_that_fails_is_told_everywhere(broker: BrokerProcess, moody: Moody) -> None:
    make(broker, "there", remote_storage_enable="true", local_retention_ms="1")
    produce(broker, "there", RECORDS)
    address = broker.served["http"][0]
    with httpx.Client(base_url=f"http://{address}", timeout=60) as http:
        until(lambda: _gone(ledgers(http, "there")), broker)
        moody.mood = "403"
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
        consumer.assign([TopicPartition("there", 0, 0)])
        told = None
        while told is None:
            for each in consumer.consume(1, 0.1):
                told = each.error()
        # As from Kafka, whose brokers answer so where their remote storage fails.
        assert told.code() == KafkaError.UNKNOWN
        line = "ERROR magnetar.kafka: there-0: offset 0 cannot be read, and clients that ask for it are told so: "
        until(lambda: any(line in each for each in broker.log_lines()), broker)
        assert len([each for each in broker.log_lines() if line in each]) == 1, "a line a minute"
        name = "kafka_server_brokertopicmetrics_remotefetcherrors_total"
        counted = [row for row in http.get("/metrics").text.splitlines() if row.startswith(name)]
        assert all(
            float(row.rpartition(" ")[2]) > 0 for row in counted if "{}" in row or 'topic="there"' in row
        )
        assert counted
        why = _why(broker)
        assert "offset 0 could not be read" in why
        assert "Check the bucket's name, the keys and their rights" in why
        moody.mood = "well"
        found: list[tuple[int, int, bytes, bytes]] = []
        for _ in range(2400):
            found += [
                (0, each.offset(), b"", b"") for each in consumer.consume(1000, 0.05) if not each.error()
            ]
            if len(found) >= 100:
                break
        consumer.close()
        assert [row[1] for row in found[:100]] == list(range(100))
        assert "could not be read" not in _why(broker)


def _why(broker: BrokerProcess) -> str:
    asked = [
        Path(sys.executable).with_name("magnetar"),
        "why",
        "there-0",
        "--bootstrap-server",
        broker.address,
    ]
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    return done.stdout + done.stderr
