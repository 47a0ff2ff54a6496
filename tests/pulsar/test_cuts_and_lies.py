"""Each command of Pulsar's protocol, cut at every byte, with a lie in every length, by clients of all ages."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from magnetar.pulsar.handlers import ROUTES
from magnetar.records.crc import crc32c
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw
from tests.pulsar.inside import Inside, inside, settled
from tests.waiting import until_so

MOST = int(os.environ.get("MAGNETAR_CUTS", "24"))
"""Bytes and lengths of one command that are tried; 0 for all."""
SEED = int(os.environ.get("MAGNETAR_SEED", "37"))
AGES = (0, 6, 21)
"""Versions of the protocol that clients say they speak."""
T = "persistent://public/default/prey"
TEXTS = (T, "", "a", "λ", "x" * 200, "persistent://public/default/t-partition-0", "0x0_0x1", ".*")
VARINTS = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 11,
)


def filled(message: Message, random: Random, depth: int = 0) -> Message:
    """Give each field of a message a value, or most of them."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and random.random() < 0.2:
            continue
        if field.message_type is not None:
            if depth > 3:
                continue
            inner: Any = getattr(message, field.name)
            for _ in range(random.choice((0, 1, 2)) if field.is_repeated else 1):
                filled(inner.add() if field.is_repeated else inner, random, depth + 1)
            if not field.is_repeated:
                inner.SetInParent()
            continue
        values = [_value(field, random) for _ in range(random.choice((0, 1, 3)))]
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, _value(field, random))
    return message


def _value(field: FieldDescriptor, random: Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = random.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return random.choice(field.enum_type.values).number
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return random.choice((0, 1, 2, 2**31, 2**32 - 1))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return random.choice((0.0, -1.5, 1e300))
    return random.choice((0, 1, -1, 2**31 - 1, -(2**31)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def lengths(data: bytes, at: int, end: int, descriptor: Any) -> Iterator[tuple[int, int]]:
    """Yield where the lengths of a serialized message begin and end."""
    while at < end:
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case _:
                size, began = _varint(data, at)
                yield at, began
                inner = descriptor.fields_by_number[key >> 3].message_type
                at = began
                if inner is not None:
                    yield from lengths(data, at, at + size, inner)
                at += size


def framed(body: bytes, entry: bytes) -> bytes:
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


class Said(NamedTuple):
    """What a client says behind its greeting, and whether it can only be the end of the connection."""

    data: bytes
    is_cut: bool = False


def said(command: BaseCommand.Type, random: Random) -> Iterator[Said]:
    """Yield what hostile clients say."""
    made = BaseCommand(type=command)
    field: Any = getattr(made, ROUTES[command].field)
    filled(field, random)
    field.SetInParent()
    entry = raw.entry() if command == BaseCommand.SEND else b""
    body = made.SerializeToString()
    whole = framed(body, entry)
    for at in range(len(whole)):
        if not MOST or len(whole) <= MOST or at < 9 or random.random() < MOST / len(whole):
            yield Said(whole[:at])  # and the client leaves
            if at >= 4:
                yield Said(struct.pack(">I", at - 4) + whole[4:at], is_cut=at < 8 + len(body))
    for lie in (0, 1, 2**31 - 1, 2**32 - 1, len(whole) - 5, len(whole) - 3):
        yield Said(struct.pack(">I", lie) + whole[4:], is_cut=lie != len(whole) - 3)
        yield Said(whole[:4] + struct.pack(">I", lie) + whole[8:], is_cut=lie > len(whole) - 8)
    for began, end in lengths(body, 0, len(body), BaseCommand.DESCRIPTOR):
        for lie in VARINTS:
            yield Said(framed(body[:began] + lie + body[end:], entry))
    if entry:
        for size in (0, 1, 2**31 - 1, 2**32 - 1, len(entry)):
            lied = struct.pack(">I", size) + entry[10:]
            yield Said(framed(body, entry[:2] + struct.pack(">I", crc32c(lied)) + lied))


@pytest.fixture
async def broker() -> Any:
    async with inside() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("command", ROUTES, ids=BaseCommand.Type.Name)
async def test_a_broker_is_not_surprised(
    broker: Inside, caplog: pytest.LogCaptureFixture, command: BaseCommand.Type
) -> None:
    caplog.set_level(logging.ERROR)
    random = Random(f"{SEED}/{command}")
    greetings = [raw.frame(raw.hello(age)) for age in AGES]
    made = [raw.frame(raw.producer(T)) + raw.frame(raw.subscribe(T)), b""]
    for number in range(4):
        for data, is_cut in said(command, random):
            client = broker.client(connect=False)
            client.feed(random.choice(greetings) + made[number % 2] + data)
            await settled(4)
            assert not is_cut or not client.is_open, data.hex()
            client.leave()
            await settled(2)
            surprises = [each for each in caplog.records if each.exc_info]
            assert not surprises, (data.hex(), surprises[0].getMessage(), surprises[0].exc_text)
    good = broker.client()
    assert (await good.ask(raw.producer(T, 7, 7))).type == BaseCommand.PRODUCER_SUCCESS
    good.leave()
    await until_so(lambda: broker.broker.serving.memory.held_bytes == 0)
    assert broker.broker.serving.connections.count == 0
    assert not [each for each in caplog.records if each.exc_info]
