"""``check_batch`` looks at runs of records at once; it must accept just what looking at each one accepts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    UNKNOWN_TIME,
    PlainRecord,
    encode_batch,
    read_header,
    seal,
    with_log_append_time,
)
from magnetar.records.check import check_and_open, check_batch, check_records, max_time
from magnetar.records.compression import Codec
from magnetar.records.errors import CorruptBatch, InvalidRecord
from magnetar.records.mapping import RawRecord, encode_record

FAR = 1 << 48  # a timestamp delta of seven bytes is within this of 0


def naive(body: bytes, count: int) -> bool:
    return naive_least(body, count) is not None


def naive_least(body: bytes, count: int) -> int | None:
    """Read record by record, by the words of Kafka's format alone: the least timestamp delta; None is no records."""
    at, least = 0, 1 << 99

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
                return None
            at += 1  # attributes
            least = min(least, number(end, 10))
            if number(end) != delta:
                return None
            field(end)
            field(end)
            headers = number(end)
            if headers < 0:
                return None
            for _ in range(headers):
                field(end, nullable=False)
                field(end)
            if at != end:
                return None
    except ValueError:
        return None
    return least if at == len(body) else None


def accepted(body: bytes, count: int) -> bool:
    """Return whether the records are; their least timestamp delta must be right, or out of all bounds if it is."""
    try:
        found = check_records(memoryview(body), count)
    except (InvalidRecord, CorruptBatch):
        return False
    least = naive_least(body, count)
    assert least is None or found == least or found < min(least, -FAR)
    return True


def runs(random: Random) -> list[PlainRecord]:
    """Records in runs of one shape, as producers send them, with breaks between."""
    found: list[PlainRecord] = []
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
            found.append(PlainRecord(key, value, headers, now, 0))  # type: ignore[arg-type]
    return found


def body_of(records: list[PlainRecord]) -> bytes:
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
    records = [PlainRecord(None, b"v", [], 0, 0)] * 20_000
    batch = encode_batch(records)
    check_batch(memoryview(batch))
    body = bytearray(batch[HEADER_BYTES:])
    for at in (9, len(body) // 3, len(body) // 2, len(body) - 2):
        body[at] ^= 0x40
        sealed = seal(read_header(batch), bytes(body))
        assert accepted(sealed[HEADER_BYTES:], len(records)) == naive(bytes(body), len(records))
        body[at] ^= 0x40


def times(random: Random) -> list[int]:
    """Times of records of one shape as clocks tell them: steady, one before the other, going back, and far apart."""
    found = [random.choice((1_700_000_000_000, 0, -1, 5))]
    for _ in range(random.randrange(1, 5)):
        spread = random.choice((0, 1, 30, 64, 5000, 8192, 1 << 20, 1 << 34, FAR // 2))
        back = random.choice((0, 0, spread, spread // 3))
        steady = random.random() < 0.5
        now = found[0] if random.random() < 0.5 else found[-1]
        for number in range(random.choice((1, 4, 5, 60, 150))):
            found.append(now + (number * spread // 150 if steady else random.randint(-back, spread)))
    return found


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from((Codec.none, Codec.lz4)))
def test_the_earliest_time_is_found(random: Random, codec: Codec) -> None:
    key, value = random.choice((None, b"k")), bytes(random.choice((0, 100)))
    stamps = times(random)
    batch = encode_batch([PlainRecord(key, value, (), stamp) for stamp in stamps], codec=codec)
    _, header, body, found = check_and_open(memoryview(batch))
    if max(abs(each - stamps[0]) for each in stamps) < FAR:
        assert header.base_timestamp + max_time(bytes(body), len(stamps)) == max(stamps)
    if max(stamps) - stamps[0] < FAR and stamps[0] - min(stamps) < FAR:
        assert found == min(stamps)
    else:
        assert found <= min(stamps)


def test_one_late_record_back_in_time_is_seen_wherever_it_is() -> None:
    for width, step in ((1, 0), (2, 2), (2, 40), (3, 9000), (5, 1 << 27)):
        for place in (1, 2, 5, 63, 64, 65, 99):
            stamps = [
                1_700_000_000_000 + (number * step if width > 1 else number // 3) for number in range(100)
            ]
            stamps[place] = stamps[0] - (abs(stamps[place] - stamps[0]) or 7)
            batch = encode_batch([PlainRecord(None, b"v" * 50, (), stamp) for stamp in stamps])
            assert check_and_open(memoryview(batch))[3] == stamps[place], (width, place)


def test_a_batch_whose_base_is_no_records_time() -> None:
    base = 1_700_000_000_000
    for first, step in ((1, 0), (60, -1), (300, -2), (9000, 7), (1 << 21, -9), (-5, -1)):
        times = [base + first + step * (number % 7) for number in range(30)]
        body = b"".join(
            encode_record(RawRecord(number, time, None, b"v" * 20, b"\0"), base)
            for number, time in enumerate(times)
        )
        header = read_header(encode_batch([PlainRecord(None, b"v", (), base)] * 30))
        batch = seal(header._replace(max_timestamp=max(times)), body)
        assert check_and_open(memoryview(batch))[3] == min(times)


@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip])
@pytest.mark.parametrize("unset", [-1, 0])
def test_a_latest_time_that_the_client_left_out_is_written(codec: Codec, unset: int) -> None:
    """Sarama sends -1; Kafka stores the latest of the records' times, by which offsets are found."""
    base = 1_700_000_000_000
    times = [base, base + 5, base + (1 << 21), base - 70, base + 9000, base - (1 << 40)]
    whole = encode_batch([PlainRecord(b"k", b"v" * 200, (("h", b"1"),), each) for each in times], codec=codec)
    header = read_header(whole)
    sent = seal(header._replace(max_timestamp=unset), whole[HEADER_BYTES:])
    stored, found, body, earliest_ms = check_and_open(memoryview(sent))
    assert (bytes(stored), found) == (whole, header)
    assert earliest_ms == min(times)
    assert max_time(bytes(body), len(times)) == 1 << 21


def test_a_batch_whose_records_have_no_time_stays_so() -> None:
    none = encode_batch([PlainRecord(None, b"v", (), -1) for _ in range(9)])
    assert bytes(check_and_open(memoryview(none))[0]) == none


def test_the_earliest_time_is_never_later_than_what_the_head_says() -> None:
    now = 1_700_000_000_000
    batch = encode_batch([PlainRecord(None, b"v", (), now + number) for number in range(9)])
    header = read_header(batch)
    records = b"".join(
        encode_record(RawRecord(number, now + 9, None, b"v", b"\0"), now) for number in range(9)
    )
    modest = seal(header._replace(max_timestamp=now + 5), records)
    assert check_and_open(memoryview(modest))[3] == now + 5
    stamped = memoryview(with_log_append_time(batch, header, now + 99))
    assert read_header(stamped).attributes & LOG_APPEND_TIME
    assert check_and_open(stamped)[3] == now + 99
    far = seal(header._replace(base_timestamp=(1 << 63) - 4), batch[HEADER_BYTES:])
    assert check_and_open(memoryview(far))[3] == UNKNOWN_TIME  # base and delta run over
    none = encode_batch([PlainRecord(None, b"v", (), -1) for _ in range(9)])
    assert check_and_open(memoryview(none))[3] == -1
