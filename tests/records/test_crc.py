"""The CRC of two pieces is that of both together, whatever their sizes."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from magnetar.records.crc import MIN_COMBINED_BYTES, combined, crc32c, extended

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
