"""Runs of equal records are checked by slices; whatever is done to a batch, the verdict is that of a plain walk."""

from __future__ import annotations

import random

import pytest

from magnetar.records.batch import HEADER_BYTES, Header, Record, encode_batch
from magnetar.records.check import check_records
from magnetar.records.errors import CorruptBatch, InvalidRecord
from magnetar.records.varint import decode_zigzag


def plain_walk(body: bytes, count: int) -> bool:
    """Read every field of every record, one by one."""
    try:
        at = 0
        for delta in range(count):
            at = _plain_record(body, at, delta)
    except (CorruptBatch, IndexError, AssertionError):
        return False
    return at == len(body)


def _plain_record(body: bytes, at: int, delta: int) -> int:
    length, at = decode_zigzag(body, at)
    end = at + length
    assert 6 <= length <= len(body) - at
    _, at = decode_zigzag(body, at + 1, most_bytes=10)
    number, at = decode_zigzag(body, at)
    assert number == delta
    for _ in ("key", "value"):
        at = _plain_bytes(body, at, end)
    headers, at = decode_zigzag(body, at)
    assert 0 <= headers <= end - at
    for _ in range(headers):
        name, _ = decode_zigzag(body, at)
        assert name >= 0
        at = _plain_bytes(body, _plain_bytes(body, at, end), end)
    assert at == end
    return end


def _plain_bytes(body: bytes, at: int, end: int) -> int:
    length, at = decode_zigzag(body, at)
    assert -1 <= length <= end - at
    return at + max(length, 0)


def some_records(random_: random.Random) -> list[Record]:
    """Give records mostly of one shape, with some others among them."""
    size = random_.choice((0, 1, 10, 63, 64, 100, 1000))
    key = random_.choice((None, b"", b"k" * 5, b"k" * 70))
    step_ms = random_.choice((0, 1, 40, 9000))
    odd = random_.choice((0.0, 0.02, 0.3))
    records = []
    for number in range(random_.choice((1, 3, 15, 70, 200))):
        value = random_.randbytes(size)
        if random_.random() < odd:
            value = random_.randbytes(random_.randrange(200))
        headers = (Header("h", None),) if random_.random() < odd else ()
        records.append(Record(key, value, headers, timestamp=1_700_000_000_000 + number * step_ms))
    return records


@pytest.mark.parametrize("seed", range(60))
def test_the_verdict_is_that_of_a_plain_walk(seed: int) -> None:
    random_ = random.Random(seed)
    records = some_records(random_)
    body = encode_batch(records)[HEADER_BYTES:]
    check_records(memoryview(body), len(records))
    for _ in range(100):
        damaged = bytearray(body)
        for _ in range(random_.choice((1, 1, 2, 5))):
            damaged[random_.randrange(len(damaged))] = random_.choice(
                (0, 1, 2, 0x7F, 0x80, random_.randrange(256))
            )
        try:
            check_records(memoryview(damaged), len(records))
            accepted = True
        except InvalidRecord:
            accepted = False
        assert accepted == plain_walk(bytes(damaged), len(records)), f"seed {seed}"
