"""What `explain` tells is what was produced, over the socket of a live broker and from its directory alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.admin.address import SOCKET
from magnetar.admin.client import ask
from magnetar.admin.errors import AdminError, NotThere, Unreachable
from magnetar.admin.explain import PREVIEW, Explained, preview
from magnetar.admin.plain import plain, restore
from magnetar.admin.questions import answer
from magnetar.admin.server import MAX_BYTES, AdminServer
from magnetar.doctor.data_directory import DataDirectory
from magnetar.ledger.formats.layout import FRAME_BYTES, ledger_path
from magnetar.records.batch import Header, PlainRecord, encode_batch
from magnetar.records.compression import Codec
from magnetar.records.pulsar_entries import open_send
from magnetar.records.pulsar_metadata import (
    MessageMetadata,
    SingleMessageMetadata,
    encode_metadata,
    encode_single,
)
from magnetar.records.pulsar_plain import framed_message
from tests.admin.house import House

BATCH = encode_batch(
    [
        PlainRecord(b"k0", b"v0", (), 1000),
        PlainRecord(None, b"\xff\x00", (Header("h", None), Header("h", b"twice")), 1005),
        PlainRecord(b"k2", None, (), 990),
    ],
    codec=Codec.zstd,
    producer_id=7,
    producer_epoch=1,
    base_sequence=2**31 - 1,
)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path / "data", ledger_max_entries="50") as made:
        await made.services.groups.loaded()
        yield made


async def append(house: House, batch: bytes = BATCH) -> None:
    topic = house.services.broker.get("t")
    partition = await house.topic() if topic is None else await house.services.partitions.get(topic, 0)
    durable = house.begin_append(partition, batch)
    assert durable is not None
    await durable


async def test_everything_about_one_record(house: House) -> None:
    await house.produce(await house.topic(), 5)
    await append(house)
    await house.commit("past", 7)
    await house.commit("at", 6)
    told = await house.ask.explain("t", 0, 6)
    assert (told.ledger, told.entry, told.batch_index, told.entry_format) == (0, 1, 1, "kafka")
    assert told.transaction == "none"
    assert told.batch is not None
    batch = told.batch
    assert (batch.base_offset, batch.last_offset, batch.records, batch.codec) == (5, 7, 3, "zstd")
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 2**31 - 1)
    assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (1000, 1005, "CreateTime")
    assert batch.size == len(BATCH)
    record = told.record
    assert record is not None
    assert (record.timestamp, record.sequence) == (1005, 0)
    assert record.key.text is None
    assert (record.value.text, record.value.size) == ("\\xff\\x00", 2)
    assert [(each.key, each.value.text) for each in record.headers] == [("h", None), ("h", "twice")]
    assert [each.group for each in told.groups_past] == ["past"]
    assert [each.group for each in told.groups_before] == ["at"]


async def test_a_record_that_a_pulsar_producer_sent(house: House) -> None:
    single = SingleMessageMetadata(payload_size=2, partition_key=b"k", event_time=5)
    written = encode_single(single)
    payload = (len(written).to_bytes(4, "big") + written + b"v0") * 2
    metadata = MessageMetadata(b"p-1", 7, 1000, num_messages_in_batch=2, batched=True)
    sent = open_send(framed_message(encode_metadata(metadata), payload, 2).framed)
    await append(house)
    topic = house.services.broker.get("t")
    assert topic is not None
    log = (await house.services.partitions.get(topic, 0)).log
    durable = log.append((sent.framed,), messages=sent.messages, timestamp_ms=sent.timestamp_ms).done
    assert durable is not None
    await durable
    told = await house.ask.explain("t", 0, 4)
    assert (told.entry_format, told.message_id) == ("pulsar", f"{told.ledger}:1:0:1")
    assert told.message is not None
    assert (told.message.producer_name, told.message.sequence_id, told.message.messages) == ("p-1", 7, 2)
    assert told.batch is not None
    assert (told.batch.base_offset, told.batch.last_offset, told.batch.codec) == (3, 4, "none")
    assert told.record is not None
    assert (told.record.key.text, told.record.value.text, told.record.timestamp) == ("k", "v0", 5)


async def test_the_place_in_the_file_is_where_the_entry_lies(house: House) -> None:
    await append(house)
    await append(house, encode_batch([PlainRecord(b"needle", b"v", (), 1)]))
    told = await house.ask.explain("t", 0, 3)
    assert told.file is not None
    data = Path(told.file.path).read_bytes()
    frame = data[told.file.position : told.file.position + told.file.size]
    assert b"needle" in frame
    assert len(frame) == told.entry_size + FRAME_BYTES
    assert len(data) >= told.file.position + told.file.size


@pytest.mark.parametrize("offset", [3, 4, 1 << 62])
async def test_an_offset_that_is_not_there(house: House, offset: int) -> None:
    await append(house)
    with pytest.raises(NotThere, match="it holds 0 to 2"):
        await house.ask.explain("t", 0, offset)


async def test_topics_and_partitions_that_are_not_there(house: House) -> None:
    await house.topic()
    for topic, partition in (("nowhere", 0), ("t", 1), ("a/b", 0)):
        with pytest.raises(NotThere):
            await house.ask.explain(topic, partition, 0)
    with pytest.raises(NotThere, match="holds no records"):
        await house.ask.explain("t", 0, 0)


async def test_the_directory_alone_tells_the_same(tmp_path: Path) -> None:
    root = tmp_path / "data"
    async with House(root, ledger_max_entries="50") as house:
        await house.services.groups.loaded()
        partition = await house.topic()
        for number in range(200):
            value = b"%d" % number + bytes(500)
            await append(
                house,
                encode_batch([PlainRecord(b"a", value, (), number), PlainRecord(b"b", value, (), number)]),
            )
        await house.commit("g", 150)
        assert len(partition.log.ledgers()) > 3
        offsets = (0, 1, 149, 150, 399)
        live = [await house.ask.explain("t", 0, offset) for offset in offsets]
        ledgers = await house.ask.ledgers("t", 0)
        with DataDirectory(root) as beside:
            assert [beside.explain("t", 0, offset) for offset in offsets] == live
    with DataDirectory(root) as alone:
        assert [alone.explain("t", 0, offset) for offset in offsets] == live
        assert replace(alone.ledgers("t", 0), flush="always").next_offset == ledgers.next_offset
        assert [row.ledger for row in alone.ledgers("t", 0).ledgers] == [
            row.ledger for row in ledgers.ledgers
        ]
        with pytest.raises(NotThere):
            alone.explain("t", 0, 400)
        with pytest.raises(NotThere) as caught:
            alone.explain("nowhere", 0, 0)
        assert "It has" in caught.value.next_step


async def test_damage_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    root = tmp_path / "data"
    async with House(root) as house:
        await append(house)
        ledger_id = (await house.ask.explain("t", 0, 0)).ledger
    path = ledger_path(root, ledger_id)
    data = bytearray(path.read_bytes())
    data[120] ^= 1
    path.write_bytes(data)
    with DataDirectory(root) as directory, pytest.raises(AdminError, match="damaged") as caught:
        directory.explain("t", 0, 0)
    assert "ledger verify" in caught.value.next_step


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotThere, match=r"metadata\.sqlite"):
        DataDirectory(tmp_path)


async def test_the_socket_is_its_owners_alone_and_goes_with_the_broker(house: House) -> None:
    await append(house)
    server = AdminServer(house.root, house.services.broker)
    (house.root / SOCKET).write_text("left by a crash")
    await server.start()
    assert (house.root / SOCKET).stat().st_mode & 0o777 == 0o600
    told = await asyncio.to_thread(ask, house.root, "explain", topic="t", partition=0, offset=1)
    assert told == await house.ask.explain("t", 0, 1)
    with pytest.raises(NotThere, match="no offset 9"):
        await asyncio.to_thread(ask, house.root, "explain", topic="t", partition=0, offset=9)
    await server.close()
    with pytest.raises(Unreachable, match="no broker serves"):
        ask(house.root, "explain", topic="t", partition=0, offset=1)


async def test_a_directory_of_any_depth_has_a_socket(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-directory-with-a-long-name"] * 6)
    async with House(deep) as house:
        server = AdminServer(deep, house.services.broker)
        await server.start()
        assert await asyncio.to_thread(ask, deep, "why-group", group="g")
        await server.close()


async def test_a_question_without_end_is_hung_up_on(house: House) -> None:
    server = AdminServer(house.root, house.services.broker)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(house.root / SOCKET)
    writer.write(b"x" * (MAX_BYTES + 1))
    assert await reader.read() == b""
    writer.close()
    assert await asyncio.to_thread(ask, house.root, "why-group", group="g")
    await server.close()


async def test_many_questions_on_one_connection(house: House) -> None:
    server = AdminServer(house.root, house.services.broker)
    await server.start()
    reader, writer = await asyncio.open_unix_connection(house.root / SOCKET)
    writer.write(b'{"ask":"why-group","group":"a"}\nnonsense\n{"ask":"why-group","group":"b"}\n')
    lines = [await reader.readline() for _ in range(3)]
    assert [b'"about":"a"' in lines[0], b'"error"' in lines[1], b'"about":"b"' in lines[2]] == [True] * 3
    writer.close()
    await server.close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"ask": "everything"}\n',
        b'{"ask": ["explain"]}\n',
        b'{"ask": "explain"}\n',
        b'{"ask": "explain", "topic": 1, "partition": 0, "offset": 0}\n',
        b'{"ask": "explain", "topic": "t", "partition": true, "offset": 0}\n',
        b'{"ask": "why-group", "group": "g", "more": 1}\n',
        b'{"ask": "compact", "topic": "t", "partitions": ["0"]}\n',
        b'{"ask": "compact", "topic": "t", "partitions": [true]}\n',
        b'{"ask": "compact", "topic": "t", "partitions": 0}\n',
        b"[" * 60_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
async def test_what_is_no_question_gets_an_error(house: House, line: bytes) -> None:
    said = await answer(line, house.ask)
    assert said.startswith(b'{"error":{"kind":"Invalid"')


async def test_negative_numbers_find_nothing(house: House) -> None:
    await append(house)
    for given in (b'"partition":-1,"offset":0', b'"partition":0,"offset":-5'):
        said = await answer(b'{"ask":"explain","topic":"t",' + given + b"}\n", house.ask)
        assert said.startswith(b'{"error":{"kind":"NotThere"')


async def test_values_survive_their_json(house: House) -> None:
    await append(house)
    told = await house.ask.explain("t", 0, 2)
    assert restore(Explained, plain(told)) == told


def test_previews_are_harmless_to_a_terminal() -> None:
    assert preview(b"\x1b[31mred\n").text == "\\x1b[31mred\\n"
    assert preview("schön".encode()).text == "schön"
    long = preview(b"x" * 10_000)
    assert (len(long.text or ""), long.size) == (PREVIEW, 10_000)
