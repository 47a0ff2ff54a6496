"""How one ledger is cut into slices: without a gap, without an empty one, and by time as far as the index tells."""

from __future__ import annotations

import itertools
from array import array
from pathlib import Path

import pytest

from magnetar.pipeline.ledger_reader import LedgerReader
from magnetar.pipeline.ledgers import LedgerMap
from magnetar.pipeline.options import TopicPartition, parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import SliceSize
from magnetar.records.batch import PlainRecord
from tests.pipeline.writer import NOW_MS, Writer

BATCHES = 60
SMALL = SliceSize(10_000, None)


@pytest.fixture
def ledger(tmp_path: Path) -> LedgerMap:
    """A sealed ledger with a point for each batch; each batch is a second later than the one before it."""
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    for number in range(BATCHES):
        partition.append([PlainRecord(b"k", bytes(40_000), (), NOW_MS + 1000 * number)] * 2)
    partition.close_ledger()
    writer.finish()
    reader = Plan(parse_options({"path": str(tmp_path), "subscribe": "t"}, streaming=False)).reader
    assert isinstance(reader, LedgerReader)
    (found,) = reader.logs[TopicPartition("t", 0)].overlapping(0, 1)
    assert len(found.index.offsets) == BATCHES
    found.index.earliest = array("q", range(NOW_MS, NOW_MS + 1000 * BATCHES, 1000))  # as a broker keeps it
    return found


def test_cuts_follow_each_other_and_none_is_empty(ledger: LedgerMap) -> None:
    for low, high in itertools.combinations(range(0, 2 * BATCHES + 1, 5), 2):
        cuts = ledger.cuts(low, high, SMALL)
        assert (cuts[0].low, cuts[-1].high) == (low, high)
        assert all(before.high == after.low for before, after in itertools.pairwise(cuts))
        assert all(cut.low < cut.high and cut.start < cut.end for cut in cuts), (low, high)


def test_cuts_leave_out_what_is_of_no_time_that_is_wanted(ledger: LedgerMap) -> None:
    wanted = NOW_MS + 20_000, NOW_MS + 24_000
    cuts = ledger.cuts(0, 2 * BATCHES, SMALL, wanted)
    assert {offset // 2 for cut in cuts for offset in range(cut.low, cut.high)} == {20, 21, 22, 23, 24}
    assert ledger.cuts(0, 2 * BATCHES, SMALL, (NOW_MS - 2000, NOW_MS - 1000)) == []
    assert ledger.cuts(0, 2 * BATCHES, SMALL, (NOW_MS + 10**6, NOW_MS + 10**7)) == []
