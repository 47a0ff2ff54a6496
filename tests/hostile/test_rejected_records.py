"""Records that a topic's configuration forbids: which they are is told as Kafka tells it (KIP-467)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from magnetar.records.batch import LOG_APPEND_TIME, PlainRecord, encode_batch, read_header, seal
from magnetar.records.compression import Codec, compress
from magnetar.records.varint import encode_zigzag
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.hostile.client import Wire, produce
from tests.process import BrokerProcess

SECOND = 1_000
BOUNDS = {"message.timestamp.before.max.ms": "9000", "message.timestamp.after.max.ms": "9000"}
UNTIMELY = "One or more records have been rejected due to invalid timestamp"


def topic(wire: Wire, name: str, **configs: str) -> str:
    wanted = [CreatableTopicConfig(name=each, value=value) for each, value in configs.items()]
    request = CreateTopicsRequest(
        timeout_ms=9000,
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=wanted)],
    )
    assert wire.ask(request, 6).topics[0].error_code == 0
    return name


def at(*times: int) -> list[PlainRecord]:
    return [PlainRecord(b"k", b"v", [], each) for each in times]


@pytest.mark.parametrize("entry_format", ["kafka", "mixed_kafka", "pulsar"])
def test_times_too_far_from_now_are_named(broker: BrokerProcess, wire: Wire, entry_format: str) -> None:
    name = topic(wire, f"bounded-{entry_format}", **BOUNDS, **{"entry.format": entry_format})
    now = int(time.time() * SECOND)
    late, early = now + 99 * SECOND, now - 99 * SECOND
    cases: list[tuple[list[PlainRecord], list[int]]] = [
        (at(now, late, now), [1]),
        (at(now, early), [1]),
        (at(early, now, late), [0, 2]),
        (at(*[early] * 2000), list(range(2000))),
    ]
    for codec in (Codec.none, Codec.gzip):
        for records, wrong in cases:
            row = produce(wire, name, encode_batch(records, codec=codec))
            assert row.error_code == ErrorCode.INVALID_TIMESTAMP
            assert row.error_message == UNTIMELY
            assert (row.base_offset, row.log_start_offset) == (-1, 0)
            assert [each.batch_index for each in row.record_errors] == wrong
            first = row.record_errors[0].batch_index_error_message
            stamp = records[wrong[0]].timestamp
            assert first.startswith(
                f"Timestamp {stamp} of message with offset {wrong[0]} is out of range. The timestamp should be within ["
            )
    assert produce(wire, name, encode_batch(at(now, -1, now - SECOND))).base_offset == 0


def test_without_bounds_only_the_future_is_refused(broker: BrokerProcess, wire: Wire) -> None:
    name = topic(wire, "default-bounds")
    now = int(time.time() * SECOND)
    assert produce(wire, name, encode_batch(at(0, now))).base_offset == 0
    row = produce(wire, name, encode_batch(at(now, now + 7200 * SECOND)))
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in row.record_errors] == [1]


def test_only_a_broker_may_say_that_times_are_its_own(broker: BrokerProcess, wire: Wire) -> None:
    now = int(time.time() * SECOND)
    flagged = encode_batch(at(now, now), attributes=LOG_APPEND_TIME)
    row = produce(wire, topic(wire, "appended", **{"message.timestamp.type": "LogAppendTime"}), flagged)
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in row.record_errors] == [0, 1]
    # Kafka takes it where the producers' times count.
    assert produce(wire, topic(wire, "created"), flagged).error_code == 0


def test_records_without_a_key_are_named(broker: BrokerProcess, wire: Wire) -> None:
    name = topic(wire, "keyless", **{"cleanup.policy": "compact"})
    now = int(time.time() * SECOND)
    make: Callable[[bytes | None], PlainRecord] = lambda key: PlainRecord(key, b"v", [], now)  # noqa: E731
    row = produce(wire, name, encode_batch([make(b"k"), *[make(None)] * 5]))
    why = "Compacted topic cannot accept message without key in topic partition keyless-0"
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert row.log_start_offset == 0
    assert [(e.batch_index, e.batch_index_error_message) for e in row.record_errors] == [
        (number, why) for number in range(1, 6)
    ]
    assert row.error_message.startswith(
        "One or more records have been rejected due to 5 record errors in total, and only showing the first three "
        f"errors at most: [RecordError(batchIndex=1, message='{why}'), "
    )
    both = produce(wire, name, encode_batch([PlainRecord(None, b"v", [], now + 7200 * SECOND)]))
    assert both.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        (BOUNDS, ErrorCode.INVALID_TIMESTAMP),
        ({"cleanup.policy": "compact"}, ErrorCode.INVALID_RECORD),
    ],
)
def test_of_very_many_the_first_are_named(
    broker: BrokerProcess, wire: Wire, configs: dict[str, str], code: ErrorCode
) -> None:
    name = topic(wire, f"many-{code.name}", **configs)
    bodies = (b"\0\0" + encode_zigzag(number) + b"\1\2v\0" for number in range(300_000))
    records = b"".join(encode_zigzag(len(body)) + body for body in bodies)
    head = read_header(encode_batch([PlainRecord(None, b"v", [], 1)]))
    head = head._replace(attributes=1, records_count=300_000, last_offset_delta=299_999)
    row = produce(wire, name, seal(head, compress(Codec.gzip, records)))
    assert row.error_code == code
    assert [each.batch_index for each in row.record_errors] == list(range(10_000))
    assert produce(wire, name, encode_batch([PlainRecord(b"k", b"v", [], -1)])).base_offset == 0
