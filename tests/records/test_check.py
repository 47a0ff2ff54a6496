"""``check_batch`` looks at runs of records at once; it must accept just what looking at each one accepts."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records.batch import HEADER_BYTES, Record, encode_batch, read_header, seal
from magnetar.records.check import check_batch, check_records
from magnetar.records.errors import CorruptBatch, InvalidRecord


def naive(body: bytes, count: int) -> bool:
    """Read record by record, by the words of Kafka's format alone."""
    at = 0

    def number(end: int, most_bytes: int = 5) -> int:
        nonlocal at
        value = 0
        for place in range(most_bytes):
            if at >= end:
                raise ValueError
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value >> 1 if value % 2 == 0 else -(value >> 1) - 1
        raise ValueError

    def field(end: int, *, nullable: bool = True) -> None:
        nonlocal at
        length = number(end)
        if length < (-1 if nullable else 0) or at + max(length, 0) > end:
            raise ValueError
        at += max(length, 0)

    try:
        for delta in range(count):
            length = number(len(body))
            end = at + length
            if length < 0 or end > len(body):
                return False
            at += 1  # attributes
            number(end, 10)
            if number(end) != delta:
                return False
            field(end)
            field(end)
            headers = number(end)
            if headers < 0:
                return False
            for _ in range(headers):
                field(end, nullable=False)
                field(end)
            if at != end:
                return False
    except ValueError:
        return False
    return at == len(body)


def accepted(body: bytes, count: int) -> bool:
    try:
        check_records(memoryview(body), count)
    except (InvalidRecord, CorruptBatch):
        return False
    return True


def runs(random: Random) -> list[Record]:
    """Records in runs of one shape, as producers send them, with breaks between."""
    found: list[Record] = []
    now = 1_700_000_000_000
    for _ in range(random.randrange(1, 5)):
        key = random.choice((None, b"", b"k", bytes(70)))
        size = random.choice(
            (0, 1, 63, 64, 100, 8191, 8192) if random.random() < 0.1 else (0, 1, 63, 64, 100)
        )
        value = random.choice((None, bytes(size)))
        headers = [("h", b"v")] if random.random() < 0.2 else []
        step = random.choice((0, 1, 70, 9000))
        for _ in range(random.choice((1, 2, 5, 70, 200))):
            now += step
            found.append(Record(key, value, headers, now, 0))  # type: ignore[arg-type]
    return found


def body_of(records: list[Record]) -> bytes:
    return encode_batch(records)[HEADER_BYTES:]


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_run_is_accepted(random: Random) -> None:
    records = runs(random)
    assert naive(body_of(records), len(records))
    check_batch(memoryview(encode_batch(records)))


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_changed_bytes_are_accepted_only_if_each_record_still_is(random: Random) -> None:
    records = runs(random)
    body = bytearray(body_of(records))
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(body))
        body[at] = random.choice((body[at] ^ 1 << random.randrange(8), random.randrange(256), 0, 0x80))
    assert accepted(bytes(body), len(records)) == naive(bytes(body), len(records))


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False))
def test_records_left_out_doubled_or_swapped_are_noticed(random: Random) -> None:
    records = runs(random)
    count = len(records)
    pieces = [body_of([record]) for record in records]
    body = body_of(records)
    cut = random.randrange(len(body))
    for changed in (body[:cut], body + pieces[-1], body[cut:] + body[:cut], b"".join(reversed(pieces))):
        assert accepted(changed, count) == naive(changed, count)
    assert accepted(body, count + 1) == naive(body, count + 1) == False  # noqa: E712
    assert accepted(body, count - 1) == naive(body, count - 1) == False  # noqa: E712


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.integers(1, 6))
def test_noise_is_judged_alike(noise: bytes, count: int) -> None:
    assert accepted(noise, count) == naive(noise, count)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 14, 0x80, 0xFF]), max_size=40), st.integers(1, 4))
def test_small_numbers_are_judged_alike(numbers: list[int], count: int) -> None:
    assert accepted(bytes(numbers), count) == naive(bytes(numbers), count)


def test_long_runs_with_wide_deltas() -> None:
    records = [Record(None, b"v", [], 0, 0)] * 20_000
    batch = encode_batch(records)
    check_batch(memoryview(batch))
    body = bytearray(batch[HEADER_BYTES:])
    for at in (9, len(body) // 3, len(body) // 2, len(body) - 2):
        body[at] ^= 0x40
        sealed = seal(read_header(batch), bytes(body))
        assert accepted(sealed[HEADER_BYTES:], len(records)) == naive(bytes(body), len(records))
        body[at] ^= 0x40
