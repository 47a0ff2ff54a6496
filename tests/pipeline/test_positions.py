"""Pulsar's place of each record as columns, and reading by ledger, by offset and by time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from magnetar.pipeline.options import EVERYTHING, parse_options
from magnetar.pipeline.plan import Plan, ask_of
from magnetar.records.batch import PlainRecord
from magnetar.records.compression import Codec
from tests.pipeline.writer import NOW_MS, Writer

SIZES = (3, 1, 4, 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    writer = Writer(tmp_path_factory.mktemp("data"))
    (partition,) = writer.topic("t")
    for entry_format in ("kafka", "pulsar", "mixed_kafka"):
        for number, size in enumerate(SIZES):
            time = NOW_MS + partition.next_offset
            fields = [PlainRecord(b"k", b"v" * number, (), time + i) for i in range(size)]
            codec = Codec.lz4 if number % 2 else Codec.none
            partition.append(fields, codec=codec, entry_format=entry_format)
        partition.close_ledger()
    return writer.finish()


def read(data: Path, **options: str) -> list[dict[str, Any]]:
    given = {"path": str(data), "subscribe": "t", "columns": ",".join(EVERYTHING)}
    parsed = parse_options(given | options, streaming=False)
    plan = Plan(parsed)
    pieces = plan.slices(plan.starts(), plan.ends())
    return [row for p in pieces for batch in p.read(ask_of(parsed)) for row in batch.to_pylist()]


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(row["ledger_id"], row["entry_id"], row["batch_index"]) for row in rows]


def test_every_record_tells_its_place(data: Path) -> None:
    found = read(data)
    whole = [
        (ledger, entry, index)
        for ledger in (1, 2, 3)
        for entry, size in enumerate(SIZES)
        for index in range(size)
    ]
    assert places(found) == whole
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert {row["publish_time"] for row in found if row["ledger_id"] != 2} == {now}
    # What a Pulsar producer published has its time of publishing, the same for a whole entry.
    assert [row["publish_time"] - now for row in found[10:20]] == [
        timedelta(milliseconds=first)
        for first, size in ((12, 3), (13, 1), (17, 4), (19, 2))
        for _ in range(size)
    ]
    by_offset = {
        "startingOffsets": json.dumps({"t": {"0": 2}}),
        "endingOffsets": json.dumps({"t": {"0": 25}}),
    }
    assert places(read(data, **by_offset)) == whole[2:25]
    assert places(read(data, **by_offset, includePositions="true")) == whole[2:25]


def test_as_of_a_ledger_an_offset_range_or_a_time(data: Path) -> None:
    assert [row["offset"] for row in read(data, ledgers="2")] == list(range(10, 20))
    assert [row["offset"] for row in read(data, ledgers="3, 1")] == [*range(10), *range(20, 30)]
    until = {"startingTimestamp": str(NOW_MS + 4), "endingTimestamp": str(NOW_MS + 23)}
    assert [row["offset"] for row in read(data, **until)] == list(range(4, 23))


def test_parts_are_no_larger_than_asked_for_and_no_fewer(data: Path) -> None:
    def cut(**options: str) -> list[tuple[int, int]]:
        parsed = parse_options({"path": str(data), "subscribe": "t"} | options, streaming=False)
        plan = Plan(parsed)
        return [(piece.low, piece.high) for piece in plan.slices(plan.starts(), plan.ends())]

    assert cut() == [(0, 10), (10, 20), (20, 30)]
    assert cut(maxRecordsPerPartition="7") == [(0, 7), (7, 10), (10, 17), (17, 20), (20, 27), (27, 30)]
    assert len(cut(minPartitions="30")) == 30
    assert [row["offset"] for row in read(data, minPartitions="30")] == list(range(30))
    assert len(cut(minPartitions="4", maxRecordsPerPartition="2")) == 15


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
            r"minOffsetsPerTrigger \(9\) must not be",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time as in"),
        ({"isolation": "serializable"}, "isolation must be one of read_uncommitted, read_committed"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level must be one of"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be a number above 0"),
        ({"ledgers": "first"}, "ledgers must be ids"),
        ({"includePositions": "yes"}, "includePositions must be one of false, true"),
        ({"pin": "no"}, "pin must be one of true, false"),
        ({"subscribe": " , "}, "subscribe must name topics"),
    ],
)
def test_wrong_options_are_named_with_what_is_allowed(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_options({"path": "/data", "subscribe": "t"} | options, streaming=True)


def test_other_wrong_options() -> None:
    with pytest.raises(ValueError, match="subscribePattern must be a regular expression"):
        parse_options({"path": "/data", "subscribePattern": "("}, streaming=True)
    with pytest.raises(ValueError, match=r"option 'path' is missing.*kafka\.bootstrap\.servers"):
        parse_options({"subscribe": "t"}, streaming=True)
    kept = parse_options(
        {"path": "/d", "subscribe": "t", "groupIdPrefix": "g", "fetchOffset.numRetries": "3"}, streaming=None
    )
    assert kept.max_trigger_delay_ms == 900_000
    times = ("250", "250ms", "2s", "15m", "1 h", "1d")
    delays = [
        parse_options({"path": "/d", "subscribe": "t", "maxTriggerDelay": t}, streaming=True) for t in times
    ]
    assert [d.max_trigger_delay_ms for d in delays] == [250, 250, 2000, 900_000, 3_600_000, 86_400_000]
