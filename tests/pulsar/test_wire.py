"""Frames and commands: cut anywhere, read back as written, refused where they cannot be."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.records.sticky_keys import murmur3_32
from magnetar.schema_registry.avro_compatibility import can_read
from magnetar.wire.pulsar import encode
from magnetar.wire.pulsar.frames import BIG_FRAME_BYTES, BadFrame, PulsarFrameReader, read_frame
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw

UINT64 = st.integers(0, 2**63 - 1)


@given(st.lists(st.integers(0, 3 * BIG_FRAME_BYTES), max_size=6), st.lists(st.floats(0, 1), max_size=12))
def test_frames_come_out_whole_however_the_bytes_were_cut(sizes: list[int], cuts: list[float]) -> None:
    sent = [raw.frame(raw.send(sequence_id=n), bytes([n]) * size) for n, size in enumerate(sizes)]
    stream = b"".join(sent)
    reader, found = PulsarFrameReader(1 << 20), []
    places = sorted({0, len(stream), *(int(cut * len(stream)) for cut in cuts)})
    for start, end in pairwise(places):
        reader.feed(stream[start:end])
        while (frame := reader.next_frame()) is not None:
            found.append(bytes(frame))
    assert found == [frame[4:] for frame in sent]
    for number, frame in enumerate(found):
        command, entry, _ = read_frame(memoryview(frame))
        assert command.send.sequence_id == number
        assert bytes(entry) == bytes([number]) * sizes[number]


def test_frames_before_a_bad_size_can_still_be_had() -> None:
    reader = PulsarFrameReader(1 << 20)
    reader.feed(raw.frame(raw.ping()) + struct.pack(">I", 2 << 20))
    assert reader.next_frame() is not None
    with pytest.raises(BadFrame, match="2097152 bytes"):
        reader.next_frame()


@given(UINT64, UINT64, UINT64, st.integers(-1, 1000), st.integers(0, 50), st.lists(st.integers(0, 2**64 - 1)))
def test_the_commands_written_by_hand_are_protobufs(
    consumer: int, ledger: int, entry: int, partition: int, count: int, ack_set: list[int]
) -> None:
    head = encode.message_head(consumer, (ledger, entry), partition, 10, count, ack_set, 3)
    command, _, _ = read_frame(memoryview(head[4:]))
    message = command.message
    place = message.message_id
    assert (message.consumer_id, place.ledgerId, place.entryId) == (consumer, ledger, entry)
    assert (place.partition, message.redelivery_count, message.consumer_epoch) == (partition, count, 3)
    assert [word % 2**64 for word in message.ack_set] == ack_set
    assert struct.unpack_from(">I", head)[0] == len(head) - 4 + 10
    command, _, _ = read_frame(
        memoryview(encode.send_receipt(consumer, ledger, entry, (1, 2), partition)[4:])
    )
    receipt = command.send_receipt
    assert (receipt.producer_id, receipt.sequence_id, receipt.highest_sequence_id) == (
        consumer,
        ledger,
        entry,
    )


def test_text_that_is_none_is_refused() -> None:
    command = (
        raw.producer("persistent://public/default/t").SerializeToString().replace(b"public", b"pub\xffic")
    )
    with pytest.raises(BadFrame, match="topic is not UTF-8"):
        read_frame(memoryview(struct.pack(">I", len(command)) + command))


def test_a_command_without_what_it_must_have_is_refused() -> None:
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id = 1
    body = command.SerializePartialToString()
    with pytest.raises(BadFrame, match="incomplete"):
        read_frame(memoryview(struct.pack(">I", len(body)) + body))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"", 0),
        (b"a", 0x3C2569B2),
        (b"abc", 0xB3DD93FA),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
    ],
)
def test_keys_are_hashed_as_pulsars_clients_hash_them(text: bytes, value: int) -> None:
    assert murmur3_32(text) == value


def record(*fields: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": list(fields)}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": ["null", "string"], "default": None}


@pytest.mark.parametrize(
    ("reader", "writer", "reads"),
    [
        (record(A), record(A), True),
        (record(A, B), record(A), True),
        (record(A, {"name": "c", "type": "int"}), record(A), False),
        (record(A), record(A, B), True),
        (record({"name": "a", "type": "long"}), record(A), True),
        (record(A), record({"name": "a", "type": "long"}), False),
        (record({"name": "x", "aliases": ["a"], "type": "int"}), record(A), True),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False),
        (["null", "int"], "int", True),
        ("int", ["null", "int"], False),
        (
            {"type": "enum", "name": "E", "symbols": ["X"]},
            {"type": "enum", "name": "E", "symbols": ["X", "Y"]},
            False,
        ),
        (
            record({"name": "next", "type": ["null", "R"]}),
            record({"name": "next", "type": ["null", "R"]}),
            True,
        ),
    ],
)
def test_which_schema_reads_what_another_wrote(reader: object, writer: object, reads: bool) -> None:
    assert can_read(reader, writer) is reads
