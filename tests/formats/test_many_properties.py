"""Entries with very many properties, of batches or of a time without bounds: nobody waits until they are converted."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.kafka.partitions.conversions import convert
from magnetar.ledger import looking
from magnetar.ledger.port import StoredEntry
from magnetar.logs import producer_log
from magnetar.records.check import TakesLong
from magnetar.records.conversion import use_machine_code
from magnetar.records.entry import broker_entry_head
from magnetar.records.pulsar_metadata import (
    MessageMetadata,
    SingleMessageMetadata,
    decode_metadata,
    encode_metadata,
    encode_single,
)
from magnetar.records.pulsar_plain import framed_message
from magnetar.records.varint import encode_unsigned
from tests.turns import of_others

NOW = 1_790_000_000_000
HURRIED: dict[str, Any] = {"hurried": True, "max_unpacked": 64 << 10}


def stored(metadata: MessageMetadata, payload: bytes, entry_id: int = 0) -> StoredEntry:
    messages = metadata.num_messages_in_batch
    framed = framed_message(encode_metadata(metadata), payload, messages).framed
    last = (entry_id + 1) * messages - 1
    return StoredEntry(1, entry_id, last, memoryview(broker_entry_head(NOW, last) + bytes(framed)))


def batch(messages: int, properties: int, value: bytes = b"v") -> StoredEntry:
    pairs = tuple((b"%d" % number, b"") for number in range(properties))
    single = encode_single(SingleMessageMetadata(payload_size=len(value), properties=pairs))
    body = (len(single).to_bytes(4, "big") + single + value) * messages
    metadata = MessageMetadata(b"p", 0, NOW, num_messages_in_batch=messages, batched=True)
    return stored(metadata, body)


def alone(properties: int, entry_id: int = 0) -> StoredEntry:
    return stored(MessageMetadata(b"p", 0, NOW, ((b"k", b"v"),) * properties), b"x", entry_id)


@pytest.mark.parametrize("entry", [batch(1000, 100), alone(100_000)], ids=["batch", "alone"])
def test_very_many_properties_are_converted_while_others_go_on(entry: StoredEntry) -> None:
    """A copy of their bytes would be quick; each of a hundred thousand properties in them is not."""
    use_machine_code()
    with pytest.raises(TakesLong):
        convert([entry], [None], 1 << 20, **HURRIED)
    (part,) = convert([entry], [None], 1 << 20)
    assert not isinstance(part, Exception)


def test_few_parts_in_each_of_many_entries_are_many() -> None:
    use_machine_code()
    entries = [batch(8_000, 0) for _ in range(4)]
    with pytest.raises(TakesLong):
        convert(entries, [None] * 4, 1 << 22, **HURRIED)
    (first, *_) = convert(entries[:3], [None] * 3, 1 << 22, **HURRIED)
    assert not isinstance(first, Exception)


@pytest.mark.parametrize(
    "entry",
    [batch(10_000, 0, b"a line of text" * 7 + b"\n"), batch(5_000, 1, bytes(100))],
    ids=["text", "properties"],
)
def test_what_is_mostly_payload_is_converted_at_once(entry: StoredEntry) -> None:
    use_machine_code()
    (part,) = convert([entry], [None], 1 << 22, **HURRIED)
    assert not isinstance(part, Exception)


class Stored:
    """A log as `producer_log.load` sees it."""

    snapshot, log_start_offset, has_transactions = None, 0, False

    def __init__(self, entries: list[StoredEntry]) -> None:
        self.entries = entries
        self.log_end_offset = self.high_watermark = len(entries)

    def ledgers(self) -> tuple[()]:
        return ()

    async def read(self, offset: int, *, max_bytes: int) -> list[StoredEntry]:
        return self.entries[offset:]


async def test_metadata_of_a_time_without_bounds_are_read_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten of 100,000 properties held everybody up for 2.7 s, when a Kafka client first asked for their topic."""
    threads: list[int] = []
    header = producer_log.producer_header

    def seen(entry: StoredEntry) -> Any:
        threads.append(threading.get_ident())
        return header(entry)

    monkeypatch.setattr(producer_log, "producer_header", seen)
    await producer_log.load(cast(Any, Stored([alone(100_000, 0), alone(400, 1), alone(1, 2)])))
    here = threading.get_ident()
    assert [each == here for each in threads] == [False, True, True]


async def test_a_log_is_read_for_its_producers_with_turns_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "TURN_S", -1.0)
    with of_others() as turns:
        await producer_log.load(cast(Any, Stored([alone(1, number) for number in range(50)])))
    assert turns.count >= 50


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary(max_size=300)), max_size=5), st.booleans())
def test_properties_are_read_however_they_are_written(pairs: list[tuple[bytes, bytes]], turned: bool) -> None:
    def field(number: int, content: bytes) -> bytes:
        return encode_unsigned(number << 3 | 2) + encode_unsigned(len(content)) + content

    said = encode_metadata(MessageMetadata(b"p", 0, NOW))
    for name, value in pairs:
        both = field(1, name), field(2, value)
        said += field(4, b"".join(reversed(both) if turned else both))
    assert decode_metadata(said).properties == tuple(pairs)


def test_of_what_a_property_says_twice_the_last_counts() -> None:
    """As with protobuf; the short way is for those that are a name, a value and no more."""
    said = encode_metadata(MessageMetadata(b"p", 0, NOW))
    twice = b"\x0a\x01k\x12\x01a\x12\x01b"
    more = b"\x0a\x01k\x12\x01a\x18\x05"
    said += bytes([0x22, len(twice)]) + twice + bytes([0x22, len(more)]) + more
    assert decode_metadata(said).properties == ((b"k", b"b"), (b"k", b"a"))
