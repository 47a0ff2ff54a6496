"""Where Pulsar's frames end in bytes that only pass: whatever the pieces are, as by reading all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.proxy.pulsar.handshake import FrameEnds

SIZES = st.lists(st.integers(6, 300), min_size=1, max_size=20)


@given(SIZES, st.lists(st.integers(1, 200), max_size=40))
def test_what_is_missing_is_known_after_every_piece(sizes: list[int], pieces: list[int]) -> None:
    stream = b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes)
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + 4 + size)
    found, at = FrameEnds(), 0
    for piece in (*pieces, len(stream)):
        found.passed(stream[at : at + piece])
        at = min(at + piece, len(stream))
        begin = max(each for each in ends if each <= at)
        if at == begin:
            assert found.missing_bytes == 0
        elif at - begin < 4:
            assert found.missing_bytes == 4 - (at - begin)
        else:
            assert found.missing_bytes == min(each for each in ends if each > at) - at
    assert found.missing_bytes == 0


def test_a_size_that_cannot_be_is_the_brokers_to_refuse() -> None:
    found = FrameEnds()
    found.passed(bytes(100_000))
    assert found.missing_bytes == 0
