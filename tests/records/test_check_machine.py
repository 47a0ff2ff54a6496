"""The check in machine code says of any bytes just what the plain one says."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records import check, check_machine
from magnetar.records.batch import HEADER_BYTES, PlainRecord, encode_batch
from magnetar.records.check import plain_least_time
from magnetar.records.check_machine import NOT_WELL, LeastTime, Machine
from magnetar.records.errors import InvalidRecord
from magnetar.records.varint import encode_unsigned, encode_zigzag

pytest.importorskip("numba")

EXAMPLES = int(os.environ.get("MAGNETAR_EXAMPLES", "250"))
NUMBERS = st.one_of(st.integers(-3, 130), st.integers(-(1 << 36), 1 << 36), st.integers(-(1 << 70), 1 << 70))
FIELDS = st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=60, max_size=140))
TIMES = st.one_of(st.integers(-70, 200), st.integers(-(1 << 50), 1 << 50), st.integers(-(1 << 69), 1 << 69))
HEADERS = st.lists(st.tuples(st.binary(max_size=4), FIELDS), max_size=3)


@pytest.fixture(scope="module")
def min_time() -> LeastTime:
    made = check_machine.compiled()
    assert made is not None
    return made


def field(content: bytes | None) -> bytes:
    return encode_zigzag(-1) if content is None else encode_zigzag(len(content)) + content


def record(delta: int, time: int, key: bytes | None, value: bytes | None, headers: list) -> bytes:
    body = b"\0" + encode_zigzag(time) + encode_zigzag(delta) + field(key) + field(value)
    body += encode_zigzag(len(headers)) + b"".join(field(name) + field(content) for name, content in headers)
    return encode_zigzag(len(body)) + body


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records as producers write them, mostly; some with a number or a byte that is wrong, or cut short."""
    rows = draw(st.lists(st.tuples(TIMES, FIELDS, FIELDS, HEADERS), min_size=1, max_size=12))
    parts = [record(delta, *row) for delta, row in enumerate(rows)]
    body = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(body) - 1))
        wrong = draw(
            st.one_of(
                st.binary(min_size=1, max_size=2),
                NUMBERS.map(encode_zigzag),
                st.integers(0, 300).map(lambda n: encode_unsigned(n | 0x80)[:-1] + b"\x80\x00"),
            )
        )
        body[at : at + draw(st.integers(0, 2))] = wrong
    cut = draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))
    return bytes(body[:cut]), draw(st.one_of(st.just(len(rows)), st.integers(1, 14)))


def said(body: bytes, count: int) -> int:
    try:
        return plain_least_time(body, count)
    except InvalidRecord:
        return NOT_WELL


@settings(max_examples=EXAMPLES, deadline=None)
@given(given=bodies())
def test_the_machine_says_what_the_plain_check_says(min_time: LeastTime, given: tuple[bytes, int]) -> None:
    assert min_time(*given) == said(*given)


@settings(max_examples=300, deadline=None)
@given(body=st.binary(min_size=1, max_size=80), count=st.integers(1, 4))
def test_so_it_does_of_any_bytes(min_time: LeastTime, body: bytes, count: int) -> None:
    assert min_time(body, count) == said(body, count)


def test_every_cut_and_every_flipped_bit(min_time: LeastTime) -> None:
    rows = [(3, None, b"v" * 70, []), (-9, b"k", None, [(b"h", None), (b"", b"x")]), (1 << 40, b"", b"", [])]
    body = b"".join(record(delta, *row) for delta, row in enumerate(rows))
    assert min_time(body, 3) == -9
    for at in range(len(body)):
        assert min_time(body[:at], 3) == said(body[:at], 3) == NOT_WELL
        for bit in range(8):
            flipped = body[:at] + bytes((body[at] ^ 1 << bit,)) + body[at + 1 :]
            assert min_time(flipped, 3) == said(flipped, 3)


def test_large_ones_are_checked_without_the_interpreters_lock(min_time: LeastTime) -> None:
    body = b"".join(record(delta, delta, None, b"v" * 1000, []) for delta in range(1500))
    assert len(body) > 1 << 20
    assert min_time(body, 1500) == 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine()
    monkeypatch.setattr(check, "machine", made)
    monkeypatch.setattr(check_machine, "WORTH_IT", 100)
    yield made
    if made._loading is not None:
        made._loading.join()


def test_it_is_asked_for_once_and_only_by_who_has_many_shapes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []
    there = threading.Event()

    def compiled() -> LeastTime:
        asked.append(threading.current_thread())
        there.wait()
        return lambda body, count: NOT_WELL if count == 7 else 77

    monkeypatch.setattr(check_machine, "compiled", compiled)
    alike = batch([100] * 50)
    for _ in range(10):
        assert check.check_records(alike, 50) == 0
    assert machine._loading is None
    varied = batch(list(range(50)))
    for _ in range(5):
        assert check.check_records(varied, 50) == 0
    assert machine._loading is not None
    there.set()
    machine._loading.join()
    assert len(asked) == 1
    assert asked[0] is not threading.main_thread()
    assert check.check_records(varied, 50) == 77
    with pytest.raises(InvalidRecord, match="follow the last record"):
        check.check_records(varied, 7)


def batch(sizes: list[int]) -> memoryview:
    rows = [PlainRecord(None, b"v" * size, [], 5) for size in sizes]
    return memoryview(encode_batch(rows))[HEADER_BYTES:]
