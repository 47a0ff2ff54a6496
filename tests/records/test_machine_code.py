"""The machine code does what the plain form does, byte for byte, or leaves it to it."""

from __future__ import annotations

import base64
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records import conversion
from magnetar.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Header,
    PlainRecord,
    encode_batch,
    read_header,
)
from magnetar.records.compression import Codec
from magnetar.records.conversion import kafka_batch, pulsar_message, use_machine_code
from magnetar.records.errors import RecordsError
from magnetar.records.kernels.bytes import is_utf8
from magnetar.records.pulsar_compression import compress_payload
from magnetar.records.pulsar_metadata import Compression
from magnetar.records.pulsar_plain import framed_message, plain_kafka_batch, plain_pulsar_message
from tests.records import pulsar_oracle as oracle
from tests.records.test_pulsar_entries import NOW, codecs, kafka_entry, producers, records, stored

texts = st.text(max_size=6)
keys = st.sampled_from(
    ["", "k", "ä", "aGk=", "aGk", "/w==", "====", "a=b=", base64.b64encode(bytes(range(99))).decode()]
)
times = st.sampled_from([0, 1, NOW - 70, NOW, NOW + 10**6, 2**61, 2**63, 2**64 - 1])


@pytest.fixture(autouse=True, scope="module")
def _machine() -> None:
    use_machine_code()
    assert conversion._machine.code is not None


def _message(draw: Any, kind: Any) -> Any:
    message = kind()
    for name, value in draw(st.lists(st.tuples(texts, texts), max_size=3)):
        message.properties.add(key=name, value=value)
    if draw(st.booleans()):
        message.partition_key = draw(keys)
        message.partition_key_b64_encoded = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        message.ordering_key = draw(st.binary(max_size=70))
    if draw(st.integers(0, 5)) == 0:
        message.null_partition_key = True
    if draw(st.booleans()):
        message.event_time = draw(times)
    if draw(st.integers(0, 5)) == 0:
        message.null_value = True
    return message


@st.composite
def pulsar_entries(draw: Any) -> bytes:
    """What a Pulsar producer may have sent, as Google's protobuf writes it."""
    compression = draw(st.sampled_from(Compression))
    payloads = st.binary(max_size=80)
    if draw(st.booleans()):
        metadata, body, messages = _message(draw, oracle.MessageMetadata), draw(payloads), 1
    else:
        metadata, parts = oracle.MessageMetadata(), []
        messages = draw(st.integers(1, 5))
        for _ in range(messages):
            single, payload = _message(draw, oracle.SingleMessageMetadata), draw(payloads)
            single.payload_size = len(payload)
            if draw(st.integers(0, 5)) == 0:
                single.compacted_out = True
            written = single.SerializeToString()
            parts.append(len(written).to_bytes(4, "big") + written + payload)
        body = b"".join(parts)
        metadata.num_messages_in_batch = messages
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = (
        "p-1",
        7,
        draw(times.filter(lambda t: t < 2**61)),
    )
    metadata.schema_version, metadata.deliver_at_time = b"\0\1", NOW
    if compression:
        metadata.compression, metadata.uncompressed_size = compression, len(body)
    message = framed_message(metadata.SerializeToString(), compress_payload(compression, body), messages)
    framed = message.framed if draw(st.booleans()) else message.framed[6:]
    return stored(framed, draw(st.integers(messages - 1, 2**40)))


def both(read: Any, plain: Any, data: bytes) -> None:
    """Have both read it: equal bytes, or equal errors."""
    try:
        wanted = plain(data)
    except RecordsError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            read(data)
    else:
        found = read(data)
        if isinstance(wanted, tuple):
            assert [bytes(each) for each in found[:3]] == [bytes(each) for each in wanted[:3]]
            assert found[3:] == wanted[3:]
        else:
            assert bytes(found) == bytes(wanted)


@settings(deadline=None)  # machine code may be compiled in the first call
@given(pulsar_entries())
def test_pulsar_to_kafka(entry: bytes) -> None:
    both(kafka_batch, plain_kafka_batch, entry)


@settings(deadline=None)  # machine code may be compiled in the first call
@given(pulsar_entries(), st.data())
def test_damaged_bytes_meet_the_same_fate(entry: bytes, data: st.DataObject) -> None:
    damaged = bytearray(entry)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    both(kafka_batch, plain_kafka_batch, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@settings(deadline=None)  # machine code may be compiled in the first call
@given(st.lists(records, min_size=1, max_size=5), codecs, producers, st.sampled_from([0, LOG_APPEND_TIME]))
def test_kafka_to_pulsar_and_back(
    written: list[PlainRecord], codec: Codec, producer: tuple[int, int, int], attributes: int
) -> None:
    producer_id, epoch, sequence = producer
    batch = encode_batch(
        written, codec=codec, attributes=attributes,
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
    )  # fmt: skip
    entry = kafka_entry(batch, len(written) - 1)
    both(pulsar_message, plain_pulsar_message, entry)
    both(kafka_batch, plain_kafka_batch, stored(pulsar_message(entry).framed, len(written) - 1))


@settings(deadline=None)  # machine code may be compiled in the first call
@given(pulsar_entries())
def test_nothing_is_written_beyond_the_room_that_is_taken(entry: bytes) -> None:
    """Machine code checks no bounds when it writes: the room must be enough for any bytes."""
    code = conversion._machine.code
    data, facts = np.frombuffer(entry, np.uint8), np.empty(code.FACTS, np.int64)
    if code.open_entry(data, facts) != code.KernelStatus.DONE:
        return
    room = HEADER_BYTES + len(data) + code.RECORD_BYTES * int(facts[code.MESSAGES])
    out = np.full(room + 64, 0xAB, np.uint8)
    assert code.fill_batch(data, data, int(facts[code.PAYLOAD_AT]), facts, out) <= room
    assert (out[room:] == 0xAB).all()


@settings(deadline=None)  # machine code may be compiled in the first call
@given(st.binary(max_size=40))
def test_utf8_is_what_python_takes(data: bytes) -> None:
    try:
        data.decode()
        right = True
    except UnicodeDecodeError:
        right = False
    assert is_utf8(np.frombuffer(data, np.uint8), 0, len(data)) == right


def test_the_usual_batches_are_not_left_to_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of the above would compare the plain form with itself."""

    def fail(*_: object) -> None:
        raise AssertionError("left to the plain form")

    usual = [
        PlainRecord(b"key", b"v" * 1000, [Header("trace", "ä".encode())], NOW + 5),
        PlainRecord(None, b"", (), NOW),
        PlainRecord(b"\xff", None, (), NOW + 100),
    ]
    for name in ("plain_kafka_batch", "plain_pulsar_message", "_plain_framed"):
        monkeypatch.setattr(conversion, name, fail)
    for codec in Codec:
        for producer_id in (-1, 5):
            batch = encode_batch(
                usual,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_id,
                base_sequence=producer_id,
            )
            message = pulsar_message(kafka_entry(batch, 2))
            back = kafka_batch(stored(message.framed, 2))
            assert read_header(back).producer_id == producer_id
            assert read_header(back).records_count == 3
