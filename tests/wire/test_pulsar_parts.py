"""Commands of very many parts are refused before protobuf reads them; what is large and simple is not."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.records.varint import encode_unsigned
from magnetar.wire.pulsar import parts
from magnetar.wire.pulsar.frames import MAX_TEXTS, BadFrame, read_frame
from magnetar.wire.pulsar.parts import FEW_BYTES, MAX_PARTS, TooManyParts, check_parts
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, MessageIdData


def framed(command: BaseCommand) -> memoryview:
    body = command.SerializeToString()
    return memoryview(struct.pack(">I", len(body)) + body)


def ack(ids: int, words: int = 0) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 1, 0
    for number in range(ids):
        command.ack.message_id.add(ledgerId=1, entryId=number, ack_set=[-1] * words)
    return command


def subscribe() -> BaseCommand:
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    said = command.subscribe
    said.topic, said.subscription, said.subType, said.consumer_id, said.request_id = "t", "s", 1, 1, 1
    return command


@pytest.mark.parametrize("command", [ack(200_000), ack(1, 110_000)], ids=["ids", "words"])
def test_many_parts_are_refused_without_being_read(
    command: BaseCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = framed(command)
    monkeypatch.setattr("magnetar.wire.pulsar.frames.BaseCommand.ParseFromString", None, raising=False)
    with pytest.raises(BadFrame, match=f"more than {MAX_PARTS} fields"):
        read_frame(frame)


def test_a_number_of_a_megabyte_is_none() -> None:
    """It was followed to its end, byte by byte, 8 s for 5 MB; protobuf refuses it after ten."""
    said = b"\x08\x12\x10" + b"\x80" * (FEW_BYTES * 4) + b"\x01"
    reads = Counting(said)
    with suppress(TooManyParts):
        check_parts(BaseCommand.DESCRIPTOR, reads)
    assert reads.count < 100
    with pytest.raises(BadFrame, match="cannot be read"):
        read_frame(memoryview(struct.pack(">I", len(said)) + said))


class Counting(bytes):
    """Bytes that know how often somebody looked."""

    count = 0

    def __getitem__(self, at: Any) -> Any:
        self.count += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("beside", [0, FEW_BYTES])
def test_messages_within_messages_are_refused_at_some_depth(beside: int) -> None:
    """They ended in a ``RecursionError``, which nobody was there to catch."""
    within = b""
    for _ in range(3000):
        within = field(7, within + b"\x08\x01\x10\x01")
    said = b"\x08\x0a" + field(10, field(3, within) + field(99, bytes(beside)))
    with pytest.raises(BadFrame):
        read_frame(memoryview(struct.pack(">I", len(said)) + said))


def field(number: int, content: bytes) -> bytes:
    return encode_unsigned(number << 3 | 2) + encode_unsigned(len(content)) + content


def test_what_clients_send_is_read() -> None:
    assert len(read_frame(framed(ack(1000, 60))).command.ack.message_id) == 1000
    command = subscribe()
    for number in range(65_536):
        command.subscribe.keySharedMeta.hashRanges.add(start=number, end=number)
    command.subscribe.keySharedMeta.keySharedMode = 1
    assert len(read_frame(framed(command)).command.subscribe.keySharedMeta.hashRanges) == 65_536
    command = subscribe()
    command.subscribe.schema.name, command.subscribe.schema.type = "s", 2
    command.subscribe.schema.schema_data = b"\x0a\x00" * 2_000_000
    assert len(read_frame(framed(command)).command.subscribe.schema.schema_data) == 4_000_000


def test_many_texts_are_refused() -> None:
    command = subscribe()
    for _ in range(MAX_TEXTS // 3):
        command.subscribe.metadata.add(key="k", value="v")
    with pytest.raises(BadFrame, match="more than 10000 texts"):
        read_frame(framed(command))
    del command.subscribe.metadata[-100:]
    assert len(read_frame(framed(command)).command.subscribe.metadata) == MAX_TEXTS // 3 - 100


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))))
def test_parts_are_counted_at_every_depth(ids: list[tuple[int, list[int]]]) -> None:
    """The count is that of a plain walk over what protobuf read."""
    command = ack(0)
    for entry, words in ids:
        added = command.ack.message_id.add(ledgerId=1, entryId=entry, ack_set=words)
        added.first_chunk_message_id.CopyFrom(MessageIdData(ledgerId=1, entryId=2))
    said = command.SerializeToString()
    wanted = 2 + 2 + sum(1 + 2 + len(words) + 1 + 2 for _, words in ids)
    left = parts._count(BaseCommand.DESCRIPTOR, said, 0, len(said), wanted)
    assert left == 0
    with pytest.raises(TooManyParts):
        parts._count(BaseCommand.DESCRIPTOR, said, 0, len(said), wanted - 1)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_command_are_left_to_protobuf(said: bytes) -> None:
    check_parts(BaseCommand.DESCRIPTOR, said)
