"""A few KB that unpack to very much: refused where it is absurd, and otherwise nobody waits for the rest."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from magnetar.kafka.handlers import list_offsets
from magnetar.kafka.partitions import conversions
from magnetar.kafka.partitions.conversions import BatchConversions, convert
from magnetar.ledger.port import StoredEntry
from magnetar.logs.leader_epochs import LeaderEpochs
from magnetar.pulsar.dispatch import deliveries
from magnetar.records import conversion, joined, mapping, pulsar_plain
from magnetar.records.batch import PlainRecord, decode_records, encode_batch, read_header
from magnetar.records.check import TakesLong
from magnetar.records.compression import Codec
from magnetar.records.conversion import kafka_batch, use_machine_code
from magnetar.records.entry import broker_entry_head, kafka_message_head
from magnetar.records.mapping import encode_headers, properties_of
from magnetar.records.opened import EntryKind, open_entry
from magnetar.records.pulsar_compression import compress_payload
from magnetar.records.pulsar_metadata import MAX_MESSAGES, Compression, MessageMetadata, encode_metadata
from magnetar.records.pulsar_plain import UnreadableBatch, framed_message, plain_kafka_batch

NOW = 1_700_000_000_000
EMPTY = b"\0\0\0\2\x18\0"  # a message of a batch: 2 bytes of metadata, which say that there is no payload
MANY = 30_000


def packed(messages: int, value: bytes = EMPTY) -> tuple[MessageMetadata, bytes]:
    """A batch of the same message again and again."""
    body = value * messages
    metadata = MessageMetadata(
        b"p", 0, NOW, compression=Compression.ZSTD, uncompressed_size=len(body),
        num_messages_in_batch=messages, batched=True,
    )  # fmt: skip
    return metadata, bytes(compress_payload(Compression.ZSTD, body))


def stored(messages: int, entry_id: int = 0, value: bytes = EMPTY) -> StoredEntry:
    metadata, payload = packed(messages, value)
    framed = framed_message(encode_metadata(metadata), payload, messages).framed
    last = (entry_id + 1) * messages - 1
    data = memoryview(broker_entry_head(NOW, last) + bytes(framed))
    return StoredEntry(1, entry_id, last, data)


def kafka(messages: int) -> StoredEntry:
    """The same from a Kafka producer."""
    batch = encode_batch([PlainRecord(b"", b"", (), NOW)] * messages, codec=Codec.zstd)
    head = broker_entry_head(NOW, messages - 1) + kafka_message_head(NOW, messages)
    return StoredEntry(1, 0, messages - 1, memoryview(head + bytes(batch)))


@pytest.fixture(params=["plain", "machine"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With machine code, and without."""
    if request.param == "plain":
        monkeypatch.setattr(conversion._Machine, "get", lambda self, size: None)
    else:
        use_machine_code()
    return str(request.param)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Which threads unpacked something, and how many at the same time."""
    seen: dict[str, Any] = {"threads": set(), "most": 0}
    now, lock = 0, threading.Lock()

    def watched(unpack: Any) -> Any:
        def watch(*args: Any, **options: Any) -> Any:
            nonlocal now
            with lock:
                now += 1
                seen["threads"].add(threading.get_ident())
                seen["most"] = max(seen["most"], now)
            try:
                return unpack(*args, **options)
            finally:
                with lock:
                    now -= 1

        return watch

    for module, name in (
        (joined, "decompress_into"),
        (pulsar_plain, "decompress_payload"),
        (pulsar_plain, "decompress"),
        (conversion, "decompress"),
        (conversion, "decompress_payload"),
    ):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    return seen


async def test_one_that_is_stored_comes_as_one_marked_record(
    machine: str, caplog: pytest.LogCaptureFixture
) -> None:
    entry = stored(MAX_MESSAGES + 1)
    kept = BatchConversions()
    for _ in range(2):
        (batch,) = await kept.batches_of([entry])
    (record,) = decode_records(batch)
    assert record.headers[0].key == "pulsar.unreadable"
    assert read_header(batch).last_offset == entry.last_offset
    (line,) = [each.getMessage() for each in caplog.records]
    assert "as one record" in line
    assert "a batch of 1048577 messages; 1048576 are allowed" in line
    made = kafka_batch(entry.data)
    assert bytes(made) == bytes(plain_kafka_batch(entry.data)) == bytes(batch)
    assert isinstance(made, UnreadableBatch)
    opened = open_entry(entry.data)
    assert getattr(opened, "kind", None) is EntryKind.HELD, "compaction leaves it alone"


async def test_what_unpacks_to_much_is_unpacked_in_a_thread_and_kept(
    machine: str, threads: dict[str, Any]
) -> None:
    entry = stored(MANY)
    assert len(entry.data) < 1000
    with pytest.raises(TakesLong):
        convert([entry], [None], 1 << 20, hurried=True, max_unpacked=64 << 10)
    assert not threads["threads"]
    kept = BatchConversions()
    (batch,) = await kept.batches_of([entry])
    assert len(decode_records(batch)) == MANY
    assert threads["threads"]
    assert threading.get_ident() not in threads["threads"]
    threads["threads"].clear()
    (again,) = await kept.batches_of([entry])
    assert again == batch
    assert not threads["threads"]


async def test_what_unpacks_to_little_is_converted_at_once(machine: str, threads: dict[str, Any]) -> None:
    (batch,) = await BatchConversions().batches_of([stored(100)])
    assert len(decode_records(batch)) == 100
    assert threads["threads"] == {threading.get_ident()}


async def test_what_unpacks_to_very_much_is_converted_one_at_a_time(
    machine: str, threads: dict[str, Any]
) -> None:
    large = b"\0\0\0\4\x18" + b"\x80\x80\x40" + bytes(1 << 20)  # a payload of 1 MB
    charges: list[int] = []
    kept = BatchConversions(0, charge=charges.append)
    made = await asyncio.gather(*(kept.batches_of([stored(5, n, large)]) for n in range(4)))
    assert [len(decode_records(batch)) for (batch,) in made] == [5] * 4
    assert threads["most"] == 1
    assert sum(charges) == 0
    assert [each >= 10 << 20 for each in charges] == [True, False] * 4


async def test_who_asks_for_the_same_meanwhile_gets_what_was_converted(
    machine: str, threads: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "_VERY_LARGE_BYTES", 128 << 10)
    kept, calls = BatchConversions(), []
    monkeypatch.setattr(conversions, "_converted", _counted(conversions._converted, calls))
    made = await asyncio.gather(*(kept.batches_of([stored(MANY)]) for _ in range(4)))
    assert {len(decode_records(batch)) for (batch,) in made} == {MANY}
    assert calls.count("done") == 1


def _counted(work: Any, calls: list[str]) -> Any:
    def counting(*args: Any) -> Any:
        found = work(*args)
        calls.append("done")
        return found

    return counting


def test_records_are_laid_out_one_by_one() -> None:
    """Without machine code, memory is what goes in and what comes out, not an object for each message."""
    entry = stored(MANY)
    plain_kafka_batch(stored(10).data)
    tracemalloc.start()
    try:
        batch = plain_kafka_batch(entry.data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * (len(batch) + MANY * len(EMPTY))


async def test_a_kafka_batch_that_unpacks_to_much_is_converted_for_pulsar_in_a_thread(
    machine: str, threads: dict[str, Any]
) -> None:
    entry = kafka(MANY)
    assert len(entry.data) < 32 << 10
    (delivery,) = await deliveries.Deliveries(1 << 20).deliveries([entry])
    assert delivery.messages == MANY
    assert threads["threads"]
    assert threading.get_ident() not in threads["threads"]


@pytest.mark.parametrize("entry", [stored, kafka])
async def test_a_time_within_such_a_batch_is_looked_for_in_a_thread(
    entry: Callable[[int], StoredEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, wanted = set(), list_offsets._wanted

    def watched(*args: Any) -> Any:
        there.add(threading.get_ident())
        return wanted(*args)

    monkeypatch.setattr(list_offsets, "_wanted", watched)

    class Log:
        log_start_offset = 0

    class Partition:
        log = Log()
        epochs = LeaderEpochs()

    row: Any = type("Row", (), {})()
    await list_offsets._fill(row, Partition(), entry(MANY), None)  # type: ignore[arg-type]
    assert row.timestamp == NOW
    assert there
    assert threading.get_ident() not in there


def test_headers_are_compared_with_no_other_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record may have very many: each name is looked up once."""
    compared = 0

    class Name(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return bytes(self) == other

        __hash__ = bytes.__hash__

    pairs = [(Name(b"%d" % (number % 3000)), b"v") for number in range(4000)]
    monkeypatch.setattr(mapping, "decode_headers", lambda headers: pairs)
    properties = properties_of(encode_headers(pairs))
    assert [name for name, _ in properties[:-1]] == [name for name, _ in pairs[1000:]]
    assert compared < 20_000
