"""One broker that all hostile tests attack, and a bystander who must not notice any of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.hostile.client import Wire, fetch, produce
from tests.process import BrokerProcess

MAX_GROWTH_BYTES = 384 << 20
"""About 150 MB of it are the compiler that converting entry formats brings along; one test can keep GB if it leaks."""


class Bystander(threading.Thread):
    """A well-behaved client: writes one record, reads it back, again and again, and keeps its complaints."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self.complaints: list[str] = []
        self.rounds = 0
        self._address = address
        self._leaves = threading.Event()

    def run(self) -> None:
        try:
            with Wire(self._address) as wire:
                topics = [MetadataRequestTopic(name="bystander")]
                wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
                while not self._leaves.wait(0.02):
                    self._round(wire)
                    self.rounds += 1
        except Exception as error:
            self.complaints.append(repr(error))

    def _round(self, wire: Wire) -> None:
        value = b"%d" % self.rounds
        offset = produce(wire, "bystander", encode_batch([PlainRecord(None, value, [], 0, 0)])).base_offset
        record = decode_records(fetch(wire, "bystander", offset).records)[0]
        if (record.offset, record.value) != (self.rounds, value):
            self.complaints.append(f"round {self.rounds}: {record}")

    def leave(self) -> None:
        self._leaves.set()
        self.join(10)


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker under attack; at the end it must be as healthy as it was, and not much larger."""
    data = tmp_path_factory.mktemp("target") / "data"
    settings = ("--set", "group.initial.rebalance.delay.ms=0", "--set", "socket.request.max.bytes=8388608")
    with BrokerProcess(data, *settings) as process:
        bystander = Bystander(process.host_and_port)
        bystander.start()
        before = process.resident_bytes
        yield process
        bystander.leave()
        assert process.is_running
        assert bystander.complaints == []
        assert bystander.rounds > 0
        assert process.resident_bytes - before < MAX_GROWTH_BYTES
        assert not [line for line in process.log_lines() if "Traceback" in line or "request failed" in line]


@pytest.fixture
def wire(target: BrokerProcess) -> Iterator[Wire]:
    """A connection of the test's own."""
    with Wire(target.host_and_port) as connection:
        yield connection


@pytest.fixture(scope="session")
def topic(target: BrokerProcess) -> str:
    """A topic of two partitions' names by default settings, with three records."""
    with Wire(target.host_and_port) as connection:
        connection.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name="prey")], allow_auto_topic_creation=True), 12
        )
        for value in (b"one", b"two", b"three"):
            assert (
                produce(connection, "prey", encode_batch([PlainRecord(b"k", value, [], 0, 0)])).error_code
                == 0
            )
    return "prey"
