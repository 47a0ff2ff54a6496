"""What no consumer can read is refused with its place; what stands around it is read; offsets never shift."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import InvalidPolicy
from magnetar.kafka.errors import code_for
from magnetar.kafka.partitions import conversions
from magnetar.kafka.partitions.conversions import BatchConversions
from magnetar.kafka.partitions.formats import Batch
from magnetar.kafka.partitions.partition import Partition, PreparedBatch
from magnetar.records.batch import (
    HEADER_BYTES,
    PlainRecord,
    decode_records,
    encode_batch,
    read_header,
    seal,
)
from magnetar.records.check import check_batch
from magnetar.records.compression import Codec
from magnetar.records.errors import CorruptBatch, InvalidRecord, RecordsError
from magnetar.records.mixed_kafka import with_relative_offsets
from magnetar.records.pulsar_compression import compress_payload
from magnetar.records.pulsar_entries import open_send
from magnetar.records.pulsar_metadata import MessageMetadata, decode_metadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message
from magnetar.wire.kafka.errors import ErrorCode
from tests.admin.house import House, drafted

NOW = 1_700_000_000_000


async def send(partition: Partition, metadata: MessageMetadata, payload: bytes) -> None:
    """Append what a Pulsar producer sent."""
    sent = open_send(framed_message(encode_metadata(metadata), payload, 1).framed)
    durable = partition.log.append(
        (sent.framed,), messages=sent.messages, timestamp_ms=sent.timestamp_ms
    ).done
    if durable is not None:
        await durable


async def test_a_payload_that_cannot_be_read_comes_marked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        await house.produce(partition, 3)
        lz4 = MessageMetadata(
            b"p", 0, NOW, compression=1, uncompressed_size=100, num_messages_in_batch=4, batched=True
        )
        await send(partition, lz4, b"\xff" * 20)
        await send(partition, MessageMetadata(b"p", 1, NOW), b"good")
        for _ in range(2):
            rows = rows_of([(await partition.read(0, 1 << 20))[0]])
            assert [row.offset for row in rows] == [0, 1, 2, 3, 7]
        assert (rows[3].value, rows[4].value) == (b"\xff" * 20, b"good")
        assert rows[3].headers[0].key == "pulsar.unreadable"
        assert b"the LZ4 payload" in (rows[3].headers[0].value or b"")
        assert decode_metadata(rows[3].headers[1].value or b"") == lz4
        (line,) = [each.getMessage() for each in caplog.records if "unreadable" in each.getMessage()]
        assert line.startswith("offsets up to 6 come to Kafka's consumers as one record")


async def test_an_entry_that_is_none_is_refused_and_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What no producer can have sent is damage, or a format of another broker: not ours to give."""
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        await house.produce(partition, 3)
        strange = MessageMetadata(b"", 0, NOW, properties=((b"entry.format", b"avro"),))
        framed = framed_message(encode_metadata(strange), b"what?", 1).framed
        durable = partition.log.append((framed,), messages=1, timestamp_ms=NOW).done
        assert durable is not None
        await durable
        await send(partition, MessageMetadata(b"p", 1, NOW), b"good")
        batches, _ = await partition.read(0, 1 << 20)
        assert [row.offset for row in rows_of([batches])] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(
                CorruptBatch, match=r"entry \d+:1 cannot be read: it is in entry format 'avro'"
            ):
                await partition.read(3, 1 << 20)
        (line,) = [
            record.getMessage() for record in caplog.records if "cannot be given" in record.getMessage()
        ]
        assert line.startswith("offsets up to 3 cannot be given to consumers: entry")
        assert code_for(CorruptBatch("")) == ErrorCode.CORRUPT_MESSAGE
        batches, _ = await partition.read(4, 1 << 20)
        (record,) = decode_records(batches[0])
        assert (record.offset, record.value) == (4, b"good")


async def test_a_namespace_says_what_its_topics_are_kept_as(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        assert partition.entry_format == "kafka"
        broker = house.services.broker
        await broker.set_policies("public/default", b'{"magnetar": {"entryFormat": "pulsar"}}')
        assert partition.entry_format == "pulsar"
        await house.produce(partition, 3)
        with pytest.raises(
            InvalidPolicy, match="entryFormat is one of kafka, mixed_kafka, pulsar, not 'avro'"
        ):
            await broker.set_policies("public/default", b'{"magnetar": {"entryFormat": "avro"}}')
        assert partition.entry_format == "pulsar"


async def test_idempotent_producers_are_known_again_whatever_the_format(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        for number, entry_format in enumerate(("kafka", "mixed_kafka", "pulsar")):
            partition.topic.config = type(partition.topic.config)(entry_format=entry_format)
            batch = encode_batch(
                [PlainRecord(b"k", b"v", (), NOW)] * 5,
                producer_id=9,
                producer_epoch=2,
                base_sequence=5 * number,
            )
            durable = partition.produce(await drafted(partition, memoryview(batch))).done
            assert durable is not None
            await durable
        again = Partition(partition.topic, 0, partition.log, lambda: NOW)
        again.log.snapshot = None
        await again.load()
        assert again.producers.encode() == partition.producers.encode()
        repeated = again.produce(await drafted(again, memoryview(batch)))
        assert repeated.base_offset == 10
        assert again.log.log_end_offset == 15


def miscounted(codec: Codec) -> bytes:
    """A batch as some clients send it: every offset delta 0."""
    batch = encode_batch([PlainRecord(b"k", b"%d" % n, (), NOW) for n in range(4)])
    record = (len(batch) - HEADER_BYTES) // 4
    body = bytearray(batch[HEADER_BYTES:])
    for number in range(4):
        assert body[number * record + 3] == 2 * number
        body[number * record + 3] = 0
    from magnetar.records.compression import compress

    return seal(read_header(batch)._replace(attributes=codec), compress(codec, body))


@pytest.mark.parametrize("codec", Codec)
def test_mixed_kafka_counts_anew_what_a_client_counted_wrongly(codec: Codec) -> None:
    batch = memoryview(miscounted(codec))
    with pytest.raises(InvalidRecord):
        check_batch(batch)
    data, header, earliest_ms = with_relative_offsets(batch)
    assert earliest_ms == min(row.timestamp for row in decode_records(data))
    assert [(row.offset, row.value) for row in decode_records(data)] == [(n, b"%d" % n) for n in range(4)]
    assert (header.records_count, header.last_offset_delta) == (4, 3)
    right = memoryview(encode_batch([PlainRecord(b"k", b"v", (), NOW)] * 3, codec=codec))
    assert with_relative_offsets(right)[0] is right


@pytest.mark.parametrize("at", [22, HEADER_BYTES, HEADER_BYTES + 5, -1])
def test_mixed_kafka_refuses_damage(at: int) -> None:
    batch = bytearray(miscounted(Codec.none))
    batch[at] ^= 0x40
    with pytest.raises(RecordsError):
        with_relative_offsets(memoryview(batch))
    sealed = memoryview(seal(read_header(batch)._replace(attributes=0), bytes(batch[HEADER_BYTES:-3])))
    with pytest.raises(RecordsError):
        with_relative_offsets(sealed)


async def test_what_was_converted_is_kept_within_its_bound(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        for number in range(20):
            await send(partition, MessageMetadata(b"p", number, NOW), bytes(1000))
        entries = await partition.log.read(0, max_bytes=1 << 20)
        kept = BatchConversions(most_bytes=5000)
        whole = [await kept.batches_of(entries)]
        assert kept.bytes == 0  # together they are more than may be kept
        some = [entries[at : at + 2] for at in range(0, 20, 2)]
        first = [await kept.batches_of(two) for two in some]
        assert 2000 < kept.bytes <= 5000
        again = [await kept.batches_of(two) for two in reversed(some)][::-1]
        assert again[-1][0] is first[-1][0]
        assert again == first
        assert rows_of(first) == rows_of(whole)


def rows_of(read: Sequence[Sequence[Batch]]) -> list[PlainRecord]:
    return [row for batches in read for batch in batches for row in decode_records(batch)]


async def test_what_was_kept_of_another_read_fits_into_this_one(tmp_path: Path) -> None:
    """Consumers come with other sizes from other places: none may miss or repeat a record."""
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        for number in range(12):
            if number % 5 == 4:
                await house.produce(partition, 1)
            else:
                await send(partition, MessageMetadata(b"p", number, NOW), b"%d" % number * 40)
        entries = await partition.log.read(0, max_bytes=1 << 20)
        for seed in range(50):
            chance = random.Random(seed)
            kept = BatchConversions(most_bytes=chance.choice([500, 1 << 20]))
            for _ in range(6):
                start = chance.randrange(12)
                stop = chance.randint(start + 1, 12)
                found = await kept.batches_of(entries[start:stop], chance.choice([1, 300, 1 << 20]))
                offsets = [row.offset for row in rows_of([found])]
                assert offsets == list(range(start, start + len(offsets)))


async def test_no_more_is_converted_than_a_fetch_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = []
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        for number in range(9):
            await send(partition, MessageMetadata(b"p", number, NOW), bytes(1000))
        convert = conversions.convert
        monkeypatch.setattr(
            conversions,
            "convert",
            lambda *asked, **how: converted.append(convert(*asked, **how)) or converted[-1],
        )
        entries = await partition.log.read(0, max_bytes=1 << 20)
        for most, records in ((3000, 2), (1, 1), (1 << 20, 9)):
            found = await BatchConversions().batches_of(entries, most)
            assert len(rows_of([found])) == records
            assert sum(part.entries for part in converted[-1]) <= records + 1


async def test_large_conversions_leave_the_event_loop_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    threads = []
    convert = conversions.convert

    def noted(*asked: Any, **how: Any) -> object:
        made = convert(*asked, **how)
        threads.append(threading.current_thread() is threading.main_thread())
        return made

    monkeypatch.setattr(conversions, "convert", noted)
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        await send(partition, MessageMetadata(b"p", 0, NOW), b"small")
        await partition.read(0, 1 << 20)
        content = random.Random(1).randbytes(300_000)
        lz4 = MessageMetadata(b"p", 1, NOW, compression=1, uncompressed_size=len(content))
        await send(partition, lz4, bytes(compress_payload(1, content)))
        (row,) = rows_of([(await partition.read(1, 1 << 20))[0]])
        assert row.value == content
    assert threads == [True, False]


def test_a_broker_that_converts_nothing_loads_no_compiler() -> None:
    import subprocess

    code = (
        "import sys; import magnetar.kafka.handler, magnetar.node.service, magnetar.records.pulsar_entries; "
        "print([name for name in ('numba', 'numpy', 'llvmlite') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_a_draft_of_format_kafka_is_stored_as_it_came(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        batch = encode_batch([PlainRecord(b"k", b"v", (), NOW)])
        draft = await drafted(partition, memoryview(batch))
        assert draft == PreparedBatch(memoryview(batch), read_header(batch), earliest_ms=NOW)
        durable = partition.produce(draft).done
        assert durable is not None
        await durable
        assert bytes((await partition.read(0, 1000))[0][0]) == batch
