"""Frames come out whole and in order, however the stream was cut."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from magnetar.records.framing import MAX_CUT, NARROW_BYTES, Lending
from magnetar.wire.kafka.frames import (
    BIG_FRAME_BYTES,
    FrameInvalid,
    FrameTooLarge,
    KafkaFrameReader,
    scratch_buffer,
)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def taken(reader: KafkaFrameReader) -> Iterator[bytes]:
    while (frame := reader.next_frame()) is not None:
        assert isinstance(frame, memoryview)
        assert frame.readonly
        yield bytes(frame)


BODIES = (b"12345678", b"a" * 9, bytes(300), b"last one")


def test_a_stream_cut_at_every_byte() -> None:
    stream = framed(*BODIES)
    for cut in range(len(stream) + 1):
        reader = KafkaFrameReader()
        reader.feed(stream[:cut])
        before = list(taken(reader))
        reader.feed(stream[cut:])
        assert (*before, *taken(reader)) == BODIES


def test_a_stream_fed_byte_by_byte() -> None:
    reader, found = KafkaFrameReader(), []
    for byte in framed(*BODIES):
        reader.feed(bytes((byte,)))
        found += taken(reader)
    assert tuple(found) == BODIES


@pytest.mark.parametrize("seed", range(8))
def test_small_and_big_frames_in_random_pieces(seed: int) -> None:
    random = Random(seed)
    edges = (8, 100, BIG_FRAME_BYTES - 1, BIG_FRAME_BYTES, BIG_FRAME_BYTES + 1, 300_000, 2_000_000)
    bodies = [random.randbytes(random.choice(edges)) for _ in range(12)]
    stream, reader, found = memoryview(framed(*bodies)), KafkaFrameReader(), []
    while stream:
        count = random.choice((1, 3, 1000, 20_000, 300_000, 3_000_000))
        reader.feed(stream[:count])
        stream = stream[count:]
        found += taken(reader)
    assert found == bodies


def test_connections_share_one_scratch_buffer() -> None:
    scratch, random = scratch_buffer(), Random(1)
    streams = [
        memoryview(framed(*(random.randbytes(random.randrange(8, 40_000)) for _ in range(9))))
        for _ in range(3)
    ]
    readers = [KafkaFrameReader(scratch=scratch) for _ in streams]
    found: list[list[bytes]] = [[] for _ in streams]
    left = list(streams)
    while any(left):
        turn = random.randrange(3)
        count = random.randrange(1, 9000)
        readers[turn].feed(left[turn][:count])
        left[turn] = left[turn][count:]
        found[turn] += taken(readers[turn])
    assert [framed(*bodies) for bodies in found] == [bytes(stream) for stream in streams]


def test_a_frame_outlives_the_buffer_it_came_through() -> None:
    reader = KafkaFrameReader()
    reader.feed(framed(b"first one"))
    frame = reader.next_frame()
    reader.feed(framed(b"other one"))
    assert frame == b"first one"


def test_an_unanswered_get_buffer_loses_nothing() -> None:
    reader = KafkaFrameReader()
    reader.feed(framed(b"12345678")[:5])
    reader.get_buffer()[:3] = b"xyz"  # the socket had nothing to give
    reader.feed(framed(b"12345678")[5:])
    assert list(taken(reader)) == [b"12345678"]


def test_a_big_frame_is_received_in_place() -> None:
    body = bytes(range(256)) * 1000
    reader = KafkaFrameReader()
    reader.feed(framed(body)[:100])
    assert len(reader.get_buffer()) == len(body) - 96
    reader.feed(framed(body)[100:])
    assert list(taken(reader)) == [body]


def test_a_claimed_size_takes_no_memory_until_the_bytes_come() -> None:
    scratch = scratch_buffer()
    tracemalloc.start()
    try:
        readers = [KafkaFrameReader(scratch=scratch) for _ in range(4)]
        for reader in readers:
            reader.feed(struct.pack(">i", 100_000_000) + bytes(1000))
            reader.get_buffer()
        assert tracemalloc.get_traced_memory()[1] < 1_200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    reader = KafkaFrameReader()
    reader.feed(struct.pack(">i", size) + bytes(50))
    with pytest.raises(FrameInvalid):
        reader.next_frame()


def test_a_frame_above_the_limit_is_refused_and_one_at_it_is_not() -> None:
    reader = KafkaFrameReader(max_frame_bytes=1000)
    reader.feed(framed(bytes(1000)))
    assert list(taken(reader)) == [bytes(1000)]
    reader.feed(struct.pack(">i", 1001))
    with pytest.raises(FrameTooLarge):
        reader.next_frame()


def test_what_came_before_a_bad_size_is_given_first_and_what_follows_is_ignored() -> None:
    reader = KafkaFrameReader()
    reader.feed(framed(b"good one") + b"GET / HTTP/1.1\r\n")
    reader.feed(framed(b"too late"))
    assert reader.next_frame() == b"good one"
    for _ in range(2):
        with pytest.raises(FrameInvalid):
            reader.next_frame()


def test_many_small_frames_are_cut_only_some_at_a_time() -> None:
    bodies = [struct.pack(">q", number) for number in range(1000)]
    stream = framed(*bodies)
    reader = KafkaFrameReader()
    reader.feed(stream[:7000])
    assert len(reader._frames) == MAX_CUT
    assert reader.waiting > MAX_CUT
    assert reader.held_bytes < 7000
    first = reader.next_frame()
    reader.feed(stream[7000:])
    assert first is not None
    assert len(reader._frames) <= MAX_CUT
    assert [bytes(first), *taken(reader)] == bodies
    assert reader.held_bytes == reader.waiting == 0
    assert not reader.is_amid_frame


def test_a_big_frame_behind_many_small_ones() -> None:
    bodies = [b"12345678"] * 500 + [b"a" * 100_000] + [b"b" * 9] * 100
    stream, reader, found = framed(*bodies), KafkaFrameReader(), []
    for at in range(0, len(stream), 30_000):
        reader.feed(stream[at : at + 30_000])
        assert reader.held_bytes >= reader._whole_bytes
        found += [bytes(reader.next_frame() or b"") for _ in range(20) if reader.waiting]
    assert [*found, *taken(reader)] == bodies
    assert reader.held_bytes == 0


def test_a_bad_size_behind_many_small_frames_is_told_of_behind_them() -> None:
    reader = KafkaFrameReader()
    reader.feed(framed(*[b"12345678"] * 500) + b"\xff\xff\xff\xff")
    for _ in range(500):
        assert reader.next_frame() is not None
    with pytest.raises(FrameInvalid):
        reader.next_frame()


def test_what_has_come_goes_when_the_connection_does() -> None:
    """Whoever knows a gone connection, in a ring with it, would otherwise keep 99 MB until garbage is looked for."""
    for size in (100, 3_000_000, 90_000_000):
        reader = KafkaFrameReader()
        reader.feed(struct.pack(">i", 12) + bytes(12))
        reader.feed(struct.pack(">i", size) + bytes(size // 2))
        assert reader.held_bytes > size // 2
        reader.close()
        assert reader.held_bytes == 0
        assert reader._big is None
        assert reader.next_frame() is None
        assert not reader.is_amid_frame


def test_what_is_missing_of_a_frame_at_every_byte() -> None:
    for size in (8, 100, 300_000):
        stream, reader = framed(b"12345678", bytes(size)), KafkaFrameReader()
        cuts = range(len(stream)) if size < 1000 else (*range(30), 200_000, len(stream) - 1)
        for at in cuts:
            reader = KafkaFrameReader()
            reader.feed(stream[:at])
            rest, least = len(stream) - at, len(stream) - size
            if at == 12:
                assert reader.missing_bytes == 0
            elif 12 < at < 16:
                assert reader.missing_bytes == 16 + 8 - at  # its size is not known
            elif 4 <= at < 12:
                assert reader.missing_bytes == 12 - at
            elif at >= 16:
                assert reader.missing_bytes == rest
            assert least == 16
            reader.feed(stream[at:])
            assert reader.missing_bytes == 0


def test_a_frame_begun_while_memory_is_short_holds_little_until_it_goes_on() -> None:
    lending = Lending()
    lending.narrow(True)
    stream = framed(bytes(400_000))
    readers = [KafkaFrameReader(lending=lending) for _ in range(3)]
    for reader in readers:
        assert len(reader.get_buffer()) == NARROW_BYTES
        reader.feed(stream[:10])
        assert reader.held_bytes <= NARROW_BYTES
        reader.feed(stream[10:20_000])
        assert reader.held_bytes < 20_000 + 2 * NARROW_BYTES
    lending.narrow(False)
    for reader in readers:
        reader.feed(stream[20_000:])
        assert list(taken(reader)) == [bytes(400_000)]
