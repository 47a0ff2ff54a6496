"""The CRC of two pieces is that of both together, whatever their sizes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.records import crc
from magnetar.records.crc import MAX_SIZES, MIN_COMBINED_BYTES, combined, crc32c, extended

MAX_BYTES = 1 << 21
_SOME = random.Random(7).randbytes(MAX_BYTES)


@given(first=st.binary(max_size=300), size=st.integers(0, MAX_BYTES))
def test_the_crc_of_two_pieces_follows_from_theirs(first: bytes, size: int) -> None:
    second = _SOME[:size]
    assert combined(crc32c(first), crc32c(second), size) == crc32c(second, crc32c(first))


def test_every_size_up_to_some_kilobytes() -> None:
    first = crc32c(b"a batch's head")
    for size in range(5000):
        piece = _SOME[:size]
        assert combined(first, crc32c(piece), size) == crc32c(piece, first), size


def test_what_is_known_of_large_data_is_taken_for_true() -> None:
    data = _SOME[:MIN_COMBINED_BYTES]
    assert extended(1, data, crc32c(data)) == crc32c(data, 1)
    assert extended(1, data, crc32c(data) ^ 1) == crc32c(data, 1) ^ 1
    assert extended(1, data[1:], 0) == crc32c(data[1:], 1)


def test_sizes_that_come_again_and_again_are_learned_and_no_more_than_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crc, "_sizes", {})
    monkeypatch.setattr(crc, "_met", {})
    monkeypatch.setattr(crc, "OFTEN", 3)
    for size in range(MIN_COMBINED_BYTES, MIN_COMBINED_BYTES + 2 * MAX_SIZES):
        data = _SOME[:size]
        for first in range(5):
            assert extended(first << 29 | first, data, crc32c(data)) == crc32c(data, first << 29 | first)
        assert size in crc._sizes
    assert len(crc._sizes) == MAX_SIZES


def test_sizes_that_all_differ_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crc, "_sizes", {})
    monkeypatch.setattr(crc, "_met", {})
    for size in range(MIN_COMBINED_BYTES, MIN_COMBINED_BYTES + 5 * MAX_SIZES):
        extended(1, _SOME[:size], 0)
    assert not crc._sizes
    assert len(crc._met) <= MAX_SIZES + 1
