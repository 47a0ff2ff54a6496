"""Bytes that are not Kafka's protocol, or stop being it: the connection closes with one line in the log."""

from __future__ import annotations

import struct
import time

import pytest

from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from tests.hostile.client import Wire, fetch, frame, request_bytes
from tests.process import BrokerProcess

METADATA = request_bytes(MetadataRequest(topics=[]), 12)


def header(api_key: int, version: int, client_id: str = "x") -> bytes:
    return encode_request_header(RequestHeader(api_key, version, 1, client_id))


FATAL = {
    "a negative size": struct.pack(">i", -1),
    "the smallest size there is": struct.pack(">i", -(2**31)),
    "a size of nothing": struct.pack(">i", 0),
    "a size without room for a header": struct.pack(">i", 7) + bytes(7),
    "a size beyond the limit": struct.pack(">i", 8388609),
    "the largest size there is": struct.pack(">i", 2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    "a frame of zeros": frame(bytes(100)),
    "a frame of ones": frame(b"\xff" * 100),
    "an unknown API": frame(header(9999, 0)),
    "a negative API": frame(header(-1, 0)),
    "an API that only Kafka's controllers serve": frame(header(52, 0) + bytes(20)),
    "a version we do not serve yet": frame(header(1, 99) + bytes(40)),
    "a version from long ago": frame(header(0, 2) + bytes(40)),
    "a client id longer than its frame": frame(struct.pack(">hhih", 3, 12, 1, 30000) + b"abc"),
    "a client id that is not UTF-8": frame(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + bytes(4)),
    "a request cut short": frame(METADATA[:-2]),
    "a request without its body": frame(header(1, 12)),
    "an array that claims 2^31-1 elements": frame(header(3, 8) + b"\x7f\xff\xff\xff" + bytes(3)),
    "a compact array that claims 2^32 elements": frame(header(3, 12) + b"\xff\xff\xff\xff\x0f" + bytes(3)),
    "a varint that never ends": frame(header(3, 12) + b"\xff" * 30),
    "a string longer than its frame": frame(header(3, 8) + struct.pack(">ih", 1, 32767) + b"t"),
    "a tagged field longer than its frame": frame(struct.pack(">hhih", 3, 12, 1, 0) + b"\x01\x00\xff\x7f"),
}


@pytest.mark.parametrize("data", FATAL.values(), ids=FATAL)
def test_it_ends_the_connection_with_one_line(target: BrokerProcess, wire: Wire, data: bytes) -> None:
    before = len(target.log_lines())
    wire.send(data)
    assert wire.is_closed()
    said = target.log_lines()[before:]
    assert len(said) == 1, said
    assert "127.0.0.1" in said[0]
    assert "closed: " in said[0]


def test_an_array_of_many_nothings_is_bounded(target: BrokerProcess, wire: Wire) -> None:
    """8 MB of empty topics would become a million Python objects; decoding gives up before that."""
    before = target.resident_bytes
    wire.send(frame(header(1, 12) + bytes(21) + b"\xff\xff\xff\x03" + bytes(8_000_000)))
    assert wire.is_closed()
    assert target.resident_bytes - before < 64 << 20


def test_answers_to_what_came_before_the_bad_frame_still_go_out(wire: Wire) -> None:
    wire.send(frame(METADATA) * 3 + struct.pack(">i", -5))
    for _ in range(3):
        assert wire.frame()
    assert wire.is_closed()


def test_a_newer_api_versions_learns_what_we_speak(wire: Wire) -> None:
    wire.send(frame(header(18, 99) + b"\x00\x01\x02 whatever a later version has"))
    correlation_id, body = decode_response_header(wire.frame(), 18, 0)
    answer = ApiVersionsResponse.decode(body, 0)
    assert (correlation_id, answer.error_code) == (1, 35)
    assert [row.api_key for row in answer.api_keys] == [18]
    assert (
        wire.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4).error_code == 0
    )


def test_a_request_may_come_byte_by_byte(wire: Wire) -> None:
    for byte in frame(METADATA):
        wire.send(bytes((byte,)))
    assert wire.frame()


def test_the_other_side_may_leave_at_any_byte(target: BrokerProcess) -> None:
    data = frame(METADATA)
    before = len(target.log_lines())
    for end in range(len(data) + 1):
        with Wire(target.host_and_port) as wire:
            wire.send(data[:end])
    with Wire(target.host_and_port) as wire:
        wire.ask(MetadataRequest(topics=[]), 12)
    assert target.log_lines()[before:] == []


def test_a_claimed_size_takes_no_memory_before_its_bytes_come(target: BrokerProcess) -> None:
    before = target.resident_bytes
    wires = [Wire(target.host_and_port) for _ in range(100)]
    for wire in wires:
        wire.send(struct.pack(">i", 8_000_000) + bytes(100))
    time.sleep(0.3)
    grown = target.resident_bytes - before
    for wire in wires:
        wire.close()
    assert grown < 40 << 20, "800 MB are claimed"


def test_hundreds_of_slow_writers_harm_nobody(target: BrokerProcess, topic: str) -> None:
    before = target.resident_bytes
    wires = [Wire(target.host_and_port) for _ in range(300)]
    data = frame(METADATA)
    for byte in data[:5]:
        for wire in wires:
            wire.send(bytes((byte,)))
    with Wire(target.host_and_port) as good:
        assert fetch(good, topic, 0).error_code == 0  # while 300 requests are still to be finished
    for wire in wires:
        wire.send(data[5:])
    assert all(wire.frame() for wire in wires)
    for wire in wires:
        wire.close()
    assert target.resident_bytes - before < 32 << 20


def send_for_ever(wire: Wire, data: bytes) -> None:
    for _ in range(2000):
        wire.send(data)


def test_a_client_that_never_reads_its_answers_is_not_read_either(target: BrokerProcess, topic: str) -> None:
    before = target.resident_bytes
    with Wire(target.host_and_port) as wire:
        wire.socket.settimeout(1)
        ask = frame(
            request_bytes(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        )
        with pytest.raises(TimeoutError):
            send_for_ever(wire, ask * 200)
        assert target.resident_bytes - before < 24 << 20
        with Wire(target.host_and_port) as good:
            assert fetch(good, topic, 0).error_code == 0


def test_requests_behind_a_parked_fetch_wait_in_the_socket(target: BrokerProcess, topic: str) -> None:
    before = target.resident_bytes
    with Wire(target.host_and_port) as wire:
        wire.socket.settimeout(1)
        at_the_end = [
            FetchTopic(topic=topic, partitions=[FetchPartition(fetch_offset=3, partition_max_bytes=1)])
        ]
        parked = FetchRequest(max_wait_ms=60_000, min_bytes=1 << 20, session_epoch=-1, topics=at_the_end)
        wire.send(frame(request_bytes(parked, 12)))
        with pytest.raises(TimeoutError):
            send_for_ever(wire, frame(METADATA) * 5000)
        assert target.resident_bytes - before < 24 << 20
