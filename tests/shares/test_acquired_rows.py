"""How what a member holds is cut into rows, which it acknowledges by."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from magnetar.coordination.shares.runs import OffsetRun, RecordState
from magnetar.kafka.handlers.share_fetch import acquired
from magnetar.kafka.shares.serving import Given


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=20),
    st.lists(st.integers(0, 150), min_size=1, max_size=6, unique=True),
    st.integers(0, 20),
)
def test_rows_are_cut_where_batches_begin_and_not_smaller_than_asked(
    sizes: list[int], edges: list[int], batch_size: int
) -> None:
    starts = [100 + sum(sizes[:each]) for each in range(len(sizes))]
    end = 100 + sum(sizes)
    edges = sorted({100, end, *(each for each in edges if 100 < each < end)})
    runs = [
        OffsetRun(first, after - 1, RecordState.ACQUIRED, number)
        for number, (first, after) in enumerate(pairwise(edges), 1)
    ]
    batches = [start.to_bytes(8, "big") + b"the rest" for start in starts]
    rows = acquired(Given(batches, runs, end - 100), batch_size)
    assert [offset for row in rows for offset in range(row.first_offset, row.last_offset + 1)] == list(
        range(100, end)
    )
    for run in runs:
        mine = [row for row in rows if run.first <= row.first_offset <= run.last]
        assert {row.delivery_count for row in mine} == {run.deliveries}
        assert mine[-1].last_offset == run.last
        for row in mine[:-1]:
            assert row.last_offset + 1 in starts
            assert row.last_offset - row.first_offset + 1 >= batch_size > 0
        for row in mine:  # it could not have been cut before
            could = [each for each in starts if row.first_offset < each <= row.last_offset]
            assert batch_size == 0 or not any(each - row.first_offset >= batch_size for each in could)
