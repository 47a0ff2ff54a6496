"""Record batches that lie: each gets Kafka's error code, and nothing of it is stored."""

from __future__ import annotations

import threading
import time

import pytest

from magnetar.base.some_lines import MOST
from magnetar.records.batch import HEADER_BYTES, BatchHeader, PlainRecord, encode_batch, read_header, seal
from magnetar.records.compression import Codec, compress
from magnetar.records.varint import encode_zigzag
from magnetar.topics.names import CONSUMER_OFFSETS
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.hostile.client import Wire, fetch, produce
from tests.process import BrokerProcess

GOOD = encode_batch([PlainRecord(b"key", b"value", [], 1_000, 0), PlainRecord(None, b"x", [], 1_001, 0)])
HEADER = read_header(GOOD)
BODY = GOOD[HEADER_BYTES:]


def changed(body: bytes = BODY, **fields: int) -> bytes:
    """The good batch with other fields or another body, its length and CRC put right."""
    return seal(HEADER._replace(**fields), body)  # type: ignore[arg-type]


def one(record: bytes, **fields: int) -> bytes:
    return changed(record, last_offset_delta=0, records_count=1, **fields)


def with_byte(at: int, byte: int) -> bytes:
    return GOOD[:at] + bytes((byte,)) + GOOD[at + 1 :]


def bomb(codec: Codec, size: int) -> bytes:
    return one(compress(codec, bytes(size)), attributes=int(codec))


CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
NUMBERED = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
SIX = encode_zigzag(6)
LIES: dict[str, tuple[bytes | None, ErrorCode]] = {
    "none at all": (None, INVALID),
    "nothing": (b"", INVALID),
    "half a header": (GOOD[:40], INVALID),
    "half a batch": (GOOD[:-3], INVALID),
    "a flipped bit in the records": (with_byte(len(GOOD) - 1, 1), CORRUPT),
    "a flipped bit in the CRC": (with_byte(17, GOOD[17] ^ 1), CORRUPT),
    "a length of less than a header": (GOOD[:8] + b"\x00\x00\x00\x05" + GOOD[12:], CORRUPT),
    "a negative length": (GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:], CORRUPT),
    "a length of 2 GB": (GOOD[:8] + b"\x7f\xff\xff\xff" + GOOD[12:], INVALID),
    "magic 0": (with_byte(16, 0), INVALID),
    "magic 1": (with_byte(16, 1), INVALID),
    "magic 3": (with_byte(16, 3), INVALID),
    "two batches": (GOOD + GOOD, INVALID),
    "a control batch": (changed(attributes=0x20), INVALID),
    "a transactional batch": (changed(attributes=0x10, **NUMBERED), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "codec 5": (changed(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (changed(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "says gzip and is not": (changed(attributes=1), CORRUPT),
    "says snappy and is not": (changed(attributes=2), CORRUPT),
    "says lz4 and is not": (changed(attributes=3), CORRUPT),
    "says zstd and is not": (changed(attributes=4), CORRUPT),
    "says gzip and is zstd": (changed(compress(Codec.zstd, BODY), attributes=1), CORRUPT),
    "no records": (changed(b"", records_count=0, last_offset_delta=-1), INVALID),
    "no records, but a delta": (changed(b"", records_count=0), INVALID),
    "fewer records than it says": (changed(records_count=3, last_offset_delta=2), INVALID),
    "more records than it says": (changed(records_count=1, last_offset_delta=0), INVALID),
    "two billion records": (changed(records_count=2**31 - 1, last_offset_delta=2**31 - 2), INVALID),
    "a negative count": (changed(records_count=-2, last_offset_delta=-3), INVALID),
    "a last delta that is not the last": (changed(last_offset_delta=7), INVALID),
    "a record longer than its batch": (one(encode_zigzag(1000) + bytes(20)), INVALID),
    "a record of negative length": (one(encode_zigzag(-5) + bytes(20)), INVALID),
    "a record of no length": (one(b"\x00" + bytes(6)), INVALID),
    "a record whose key is longer than it": (one(SIX + b"\0\0\0" + encode_zigzag(100) + b"\1\0"), INVALID),
    "a record whose value is longer than it": (one(SIX + b"\0\0\0\1" + encode_zigzag(50) + b"\0"), INVALID),
    "a record with a key of length -2": (one(SIX + b"\0\0\0\3\1\0"), INVALID),
    "a record with two billion headers": (one(encode_zigzag(10) + b"\0\0\0\1\1" + encode_zigzag(2**31 - 1)), INVALID),
    "a record with headers it has not": (one(SIX + b"\0\0\0\1\1" + encode_zigzag(3)), INVALID),
    "a header without a key": (one(encode_zigzag(8) + b"\0\0\0\1\1\2\1\1"), INVALID),
    "a varint of six bytes": (one(b"\x80\x80\x80\x80\x80\x01" + bytes(20)), INVALID),
    "a varint that never ends": (one(b"\xff" * 30), INVALID),
    "offset deltas that start at 1": (one(SIX + b"\0\0\2\1\1\0"), INVALID),
    "bytes behind the last record": (changed(BODY + b"\0\0\0"), INVALID),
    "an idempotent batch without an epoch": (changed(producer_id=5, producer_epoch=-1, base_sequence=0), INVALID),
    "an idempotent batch without a sequence": (changed(producer_id=5, producer_epoch=0, base_sequence=-1), INVALID),
    **{f"a bomb of {codec.name}": (bomb(codec, 100 << 20), INVALID) for codec in Codec if codec > Codec.snappy},
    "a bomb of gzip": (bomb(Codec.gzip, 100 << 20), INVALID),
    "zeros within the limit": (bomb(Codec.zstd, 10 << 20), INVALID),
}  # fmt: skip


@pytest.mark.parametrize(("batch", "code"), LIES.values(), ids=LIES)
def test_it_gets_kafkas_code_and_is_not_stored(
    wire: Wire, topic: str, batch: bytes | None, code: ErrorCode
) -> None:
    end = fetch(wire, topic, 3).high_watermark
    assert ErrorCode(produce(wire, topic, batch).error_code) is code
    assert fetch(wire, topic, 3).high_watermark == end
    assert produce(wire, topic, GOOD).base_offset == end, "the same connection goes on"


def test_a_batch_beyond_the_topics_limit(wire: Wire, topic: str) -> None:
    batch = encode_batch([PlainRecord(None, bytes(2_000_000), [], 0, 0)])
    assert produce(wire, topic, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.slow
def test_bombs_leave_no_memory_behind(target: BrokerProcess, wire: Wire, topic: str) -> None:
    batch = bomb(Codec.zstd, 60 << 20)
    produce(wire, topic, batch)
    time.sleep(0.2)  # it takes the kernel a moment to take back 120 MB
    before = target.resident_bytes
    for _ in range(5):
        assert produce(wire, topic, batch).error_code == INVALID
    time.sleep(0.2)
    assert target.resident_bytes - before < 16 << 20


@pytest.mark.slow
def test_a_batch_that_takes_long_to_check_holds_up_nobody(
    target: BrokerProcess, wire: Wire, topic: str
) -> None:
    """A million empty records are 1 MB on the wire, and seconds of work."""
    batch = encode_batch([PlainRecord(None, b"", [], 0, 0)] * 1_000_000, codec=Codec.zstd)
    codes: list[int] = []
    sender = threading.Thread(target=lambda: codes.append(produce(wire, topic, batch).error_code))
    answered = 0
    with Wire(target.host_and_port) as other:
        sender.start()
        while sender.is_alive():
            assert fetch(other, topic, 0).error_code == 0
            answered += 1
            time.sleep(0.01)
    assert codes == [0]
    assert answered > 2, "one before it and one behind it are answered anyway"


def test_without_acks_a_lie_ends_the_connection(target: BrokerProcess, wire: Wire, topic: str) -> None:
    before = len(target.log_lines())
    with pytest.raises(ConnectionError):
        produce(wire, topic, changed(attributes=5), acks=0)
    assert len(target.log_lines()) == before + 1


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist(wire: Wire, topic: str, acks: int) -> None:
    assert produce(wire, topic, GOOD, acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_zstd_in_a_version_that_knows_none(wire: Wire, topic: str) -> None:
    batch = encode_batch([PlainRecord(None, b"x", [], 0, 0)], codec=Codec.zstd)
    assert produce(wire, topic, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_sequences_that_leap_are_in_the_log_and_do_not_fill_it(
    target: BrokerProcess, wire: Wire, topic: str
) -> None:
    """Whoever looked for why a producer had died found nothing in the broker's log."""

    def refused(epoch: int, sequence: int) -> None:
        leaping = changed(producer_id=778, producer_epoch=epoch, base_sequence=sequence)
        assert produce(wire, topic, leaping).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    assert produce(wire, topic, changed(producer_id=778, producer_epoch=3, base_sequence=0)).error_code == 0
    refused(3, 500)
    refused(4, 7)
    for _ in range(100):
        refused(3, 501)
    lines = [each for each in target.log_lines() if topic in each and "OUT_OF_ORDER" in each]
    assert all(f"{topic}-0: a batch is refused" in each and "WARN" in each for each in lines)
    assert "producer 778 (epoch 3) sequence 2 was due, and 500 came" in lines[0]
    assert "producer 778 (epoch 4) sequence 0 was due, and 7 came" in lines[1]
    assert len(lines) <= MOST


def test_an_idempotent_producer_that_leaps(wire: Wire, topic: str) -> None:
    def numbered(epoch: int, sequence: int) -> bytes:
        return changed(producer_id=777, producer_epoch=epoch, base_sequence=sequence)

    first = produce(wire, topic, numbered(3, 0))
    assert first.error_code == 0
    assert produce(wire, topic, numbered(3, 0)).base_offset == first.base_offset, (
        "a repeat is acknowledged once more"
    )
    assert produce(wire, topic, numbered(3, 9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, topic, numbered(4, 5)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(wire, topic, numbered(2, 2)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(wire, topic, numbered(3, 2)).error_code == 0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "x" * 250, "with space", "nul\0byte", "no-such-topic"]
)
def test_topics_that_cannot_be(wire: Wire, name: str) -> None:
    code = produce(wire, name, GOOD).error_code
    assert code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_acks_of_all_are_those_of_the_one_replica(wire: Wire) -> None:
    configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
    few = CreatableTopic(name="few", num_partitions=1, replication_factor=1, configs=configs)
    wire.ask(CreateTopicsRequest(topics=[few], timeout_ms=5000), 7)
    assert produce(wire, "few", GOOD, acks=-1).error_code == ErrorCode.NONE


def test_only_coordinators_write_their_topics(wire: Wire) -> None:
    wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=CONSUMER_OFFSETS)]), 4)
    assert produce(wire, CONSUMER_OFFSETS, GOOD).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert fetch(wire, CONSUMER_OFFSETS, 0).high_watermark == 0


@pytest.mark.parametrize("index", [-1, 1, 2**31 - 1])
def test_partitions_that_cannot_be(wire: Wire, topic: str, index: int) -> None:
    assert produce(wire, topic, GOOD, index=index).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_all_fields_of_a_header_may_be_anything(wire: Wire, topic: str) -> None:
    """Extremes of every field the broker reads but does not own: an answer each, and the connection lives."""
    widths = {
        "attributes": 16, "last_offset_delta": 32, "base_timestamp": 64, "max_timestamp": 64,
        "producer_id": 64, "producer_epoch": 16, "base_sequence": 32, "records_count": 32,
        "base_offset": 64, "partition_leader_epoch": 32,
    }  # fmt: skip
    assert set(widths) < set(BatchHeader._fields)
    for name, bits in widths.items():
        for value in (-(1 << bits - 1), -1, 0, (1 << bits - 1) - 1):
            code = produce(wire, topic, changed(**{name: value})).error_code
            assert code != ErrorCode.UNKNOWN_SERVER_ERROR, (name, value)
