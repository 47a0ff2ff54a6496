"""Chunked messages come whole, at the offset of their last piece, to every Kafka reader alike, wherever it begins."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from magnetar.kafka.partitions.chunked import ChunkedMessages
from magnetar.kafka.partitions.conversions import BatchConversions, ConvertedPart
from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.port import CompactionRules, ManagedLedger, StoredEntry
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.slices import read_slice
from magnetar.records.batch import PlainRecord, decode_records, encode_batch, read_header
from magnetar.records.chunks import Chunk, Chunks, Gets
from magnetar.records.pulsar_compression import compress_payload
from magnetar.records.pulsar_metadata import Compression, MessageMetadata
from tests.admin.house import House
from tests.formats.test_bad_input import NOW, send
from tests.turns import of_others

MOST = 3000


def pieces_of(
    name: bytes, body: bytes, of: int, compression: Compression = Compression.NONE, sequence_id: int = 1
) -> list[tuple[MessageMetadata, bytes]]:
    """Cut a message as Pulsar's producers do: compressed as a whole, every piece with the whole's metadata."""
    payload = bytes(compress_payload(compression, body))
    size = -(-len(payload) // of)
    return [
        (
            MessageMetadata(
                b"p", sequence_id, NOW, uuid=name, num_chunks_from_msg=of, chunk_id=number,
                total_chunk_msg_size=len(payload),
                partition_key=b"key " + name, properties=((b"name", name),), compression=compression,
                uncompressed_size=len(body) if compression else 0,
            ),
            payload[number * size : (number + 1) * size],
        )
        for number in range(of)
    ]  # fmt: skip


async def chunked(house: House) -> Partition:
    """A partition whose messages are put together up to `MOST` bytes."""
    partition = await house.topic()
    partition._conversions = BatchConversions(chunked_bytes=MOST)
    return partition


async def read(partition: Partition, offset: int = 0, max_bytes: int = 1 << 20) -> list[PlainRecord]:
    """Read to the end as a consumer does, fetch by fetch."""
    rows: list[PlainRecord] = []
    position = offset
    while position < partition.log.log_end_offset:
        batches, _ = await partition.read(position, max_bytes)
        rows += [row for batch in batches for row in decode_records(batch) if row.offset >= offset]
        assert read_header(batches[-1]).last_offset >= position
        position = read_header(batches[-1]).last_offset + 1
    return rows


def spark_rows(data: Path, slice_bytes: int, most_bytes: int = MOST) -> list[tuple[object, ...]]:
    """Read the topic as Spark's tasks do, slice by slice, each by itself."""
    options = {"path": str(data), "subscribe": "t", "sliceBytes": str(slice_bytes)}
    plan = Plan(parse_options(options | {"chunkedMessageMaxBytes": str(most_bytes)}, streaming=False))
    rows: list[tuple[object, ...]] = []
    for piece in plan.slices(plan.starts(), plan.ends()):
        for batch in read_slice(pickle.loads(pickle.dumps(piece)), ("offset", "key", "value")):
            rows += zip(*batch.to_pydict().values(), strict=True)
    plan.close()
    return rows


@pytest.mark.parametrize("compression", Compression)
async def test_a_message_comes_whole_behind_its_pieces(tmp_path: Path, compression: Compression) -> None:
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        body = b"0123456789" * 200
        one, two = pieces_of(b"one", body, 3, compression), pieces_of(b"two", body[::-1], 2)
        for piece in (one[0], two[0], one[1], two[1], one[2]):
            await send(partition, *piece)
        found = await read(partition)
        assert [(row.offset, row.key, row.value) for row in found] == [
            (3, b"key two", body[::-1]),
            (4, b"key one", body),
        ]
        assert [(header.key, header.value) for header in found[1].headers] == [("name", b"one")]
        for offset in range(5):
            assert await read(partition, offset) == found[max(offset - 3, 0) :]


async def test_what_is_not_there_in_full_stays_marked(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        whole, headless = pieces_of(b"whole", b"w" * 100, 2), pieces_of(b"headless", b"h" * 100, 3)
        large = pieces_of(b"large", b"l" * (MOST + 1), 2)
        for piece in (*headless[1:], *large, whole[0], whole[0], whole[1], whole[1]):
            await send(partition, *piece)
        rows = await read(partition)
        told = [(row.offset, row.headers[-2].value if len(row.headers) > 1 else None) for row in rows]
        assert told == [
            (0, b"headless/1/3"), (1, b"headless/2/3"), (2, b"large/0/2"), (3, b"large/1/2"),
            (6, None), (7, b"whole/1/2"),
        ]  # fmt: skip
        assert rows[4].value == b"w" * 100


async def test_a_payload_that_cannot_be_opened_comes_marked_as_a_whole(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        for metadata, payload in pieces_of(b"broken", b"b" * 2000, 2, Compression.LZ4):
            await send(partition, metadata, payload[::-1])
        (row,) = await read(partition)
        assert (row.offset, row.headers[1].key) == (1, "pulsar.unreadable")


@pytest.mark.parametrize("seed", range(4))
async def test_every_reader_gets_the_same(tmp_path: Path, seed: int) -> None:
    """Several producers at once, pieces that are lost or sent again, uuids used again; readers from everywhere."""
    chance = random.Random(seed)
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        partition.log.policy = replace(partition.log.policy, max_ledger_entries=chance.choice([7, 30, 1000]))
        under_way: list[list[tuple[MessageMetadata, bytes]]] = []
        bodies = set()
        for number in range(100):
            if chance.random() < 0.2 or not under_way:
                body = b"%d " % number * chance.randint(1, 900)
                bodies.add(body)
                name = b"uuid-%d" % chance.randrange(8)
                under_way.append(pieces_of(name, body, chance.randint(2, 4), sequence_id=number))
            what = chance.random()
            if what < 0.1:
                await send(partition, MessageMetadata(b"p", number, NOW), b"single %d" % number)
            elif what < 0.2:
                await house.produce(partition, 1)
            else:
                some = chance.choice(under_way)
                if chance.random() > 0.05:  # otherwise it is lost
                    await send(partition, *some[0])
                if chance.random() > 0.05:  # otherwise it is sent again
                    some.pop(0)
                under_way = [each for each in under_way if each]
        wanted = await read(partition)
        whole = [row for row in wanted if row.key and row.key.startswith(b"key ") and len(row.headers) == 1]
        assert whole
        assert {row.value for row in whole} <= bodies
        for offset in chance.sample(range(partition.log.log_end_offset), 25):
            partition._chunked = None if chance.random() < 0.5 else partition._chunked
            assert await read(partition, offset, chance.choice([1, 500, 5000])) == [
                row for row in wanted if row.offset >= offset
            ]
    told = [(row.offset, row.key, row.value) for row in wanted]
    for slice_bytes in (1, 20_000, 1 << 20):
        assert spark_rows(tmp_path / "data", slice_bytes) == told


async def test_pieces_without_an_end_cost_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way is not copied for each of them."""
    copied: list[int] = []
    copy = Chunks.copy

    def counted(self: Chunks[int]) -> Chunks[int]:
        copied.append(len(self._under_way))
        return copy(self)

    monkeypatch.setattr(Chunks, "copy", counted)
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        for number in range(300):
            await send(partition, *pieces_of(b"begun %d" % number, b"x" * 30, 2)[0])
        fetches = 0
        position = 0
        while position < 300:
            batches, _ = await partition.read(position, 2000)
            position = read_header(batches[-1]).last_offset + 1
            fetches += 1
    assert fetches > 3
    assert len(copied) <= 2 * fetches


async def test_who_has_read_from_the_start_need_not_look_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    look_back = ChunkedMessages._looked_back

    async def noted(self: ChunkedMessages, offset: int) -> Chunks[int]:
        looked.append(offset)
        return await look_back(self, offset)

    monkeypatch.setattr(ChunkedMessages, "_looked_back", noted)
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        for number in range(6):
            await send(partition, *pieces_of(b"headless %d" % number, b"h" * 300, 2)[1])
        rows = await read(partition, max_bytes=500)
        assert looked == []
        partition._chunked = None  # as for a consumer that begins here
        assert await read(partition, 3, max_bytes=500) == rows[3:]
        assert looked == [3]


async def test_who_looks_back_over_what_was_compacted_away_finds_what_is_left(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await chunked(house)
        rules = CompactionRules(replaces=True)
        first = MessageMetadata(b"p", 0, NOW, partition_key=b"again")
        await send(partition, replace(first, partition_key=b"once"), b"once")
        await send(partition, first, b"old")
        await send(partition, *pieces_of(b"headless", b"h" * 100, 2)[1])
        await send(partition, replace(first, sequence_id=1), b"new")
        await partition.log.roll()
        assert await partition.log.compact(rules)
        assert [entry.last_offset for entry in await partition.log.read(0, max_bytes=1 << 20)] == [0, 2, 3]
        rows = await read(partition, 2)
        assert [(row.offset, row.key) for row in rows] == [(2, b"key headless"), (3, b"again")]
        assert rows[0].headers[-2].value == b"headless/1/2"


def test_pieces_under_way_are_bounded_and_the_first_message_gives_way() -> None:
    chunks = Chunks[int](1 << 40, looked_back=True)
    for message in range(40):
        for number in range(900):
            assert chunks.take(Chunk(b"%d" % message, number, 901, 1), number, 1)[0] is Gets.NOTHING
    assert sum(len(each.places) for each in chunks._under_way.values()) == chunks._pieces <= 20_000
    assert chunks.take(Chunk(b"0", 900, 901, 1), 900, 1)[0] is Gets.MARKED
    gets, places = chunks.take(Chunk(b"39", 900, 901, 1), 900, 1)
    assert (gets, len(places)) == (Gets.WHOLE, 901)
    assert chunks.copy()._pieces == chunks._pieces


async def test_many_parts_leave_others_their_turn() -> None:
    """A fetch of small batches among pieces has thousands of parts."""
    batch = bytes(encode_batch([PlainRecord(b"k", b"v", (), NOW)]))
    entries = [StoredEntry(1, number, number, memoryview(b"")) for number in range(1500)]
    parts = [ConvertedPart(batch, 1, len(batch))] * len(entries)
    log = cast(ManagedLedger, SimpleNamespace(log_start_offset=0))
    with of_others() as turns:
        found = await ChunkedMessages(log, MOST).batches(0, entries, parts, 1 << 30)
    assert len(found) == len(entries)
    assert turns.count >= 5
