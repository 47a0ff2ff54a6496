"""What a stream decides from trigger to trigger, without Spark's machinery."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from magnetar.ledger.files.leases import needed_offset
from magnetar.metadata import SqliteFile
from magnetar.pipeline.admission import Delay
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import DataLost, ask_of
from magnetar.pipeline.progress import from_json, ids_of
from magnetar.pipeline.stream import Stream
from tests.pipeline.test_slices import fill
from tests.pipeline.writer import Partition, Writer

LOG = "public/default/persistent/t-partition-0"


def make(
    data: Path, *, topic: str = "t", batches: int = 20, partitions: int = 1
) -> tuple[Writer, list[Partition]]:
    writer = Writer(data)
    made = writer.topic(topic, partitions)
    for each in made:
        fill(each, batches)
        each.close_ledger()
    writer.finish()
    return writer, made


def stream(data: Path, **options: object) -> Stream:
    given = {"path": str(data), "subscribe": "t", "startingOffsets": "earliest"}
    return Stream(parse_options(given | {k: str(v) for k, v in options.items()}, streaming=True))


def offsets(found: Stream, start: Any, end: Any) -> list[int]:
    ask = ask_of(parse_options({"path": "/d", "subscribe": "t", "columns": "offset"}, streaming=True))
    pieces = found.slices(start, end)
    return [o for piece in pieces for batch in piece.read(ask) for o in batch.column(0).to_pylist()]


def anew(data: Path, topic_id: str = "AAAAAAAAAAAAAAAAAAAAAg==") -> None:
    """Have topic ``t`` be another topic of the same name."""
    store = SqliteFile(data / "metadata.sqlite")
    content = {"partitions": 1, "properties": {"kafka.topic.id": topic_id}}
    store.put("/admin/partitioned-topics/public/default/persistent/t", json.dumps(content).encode())
    store.close()


def delete(data: Path, name: str = "t") -> None:
    store = SqliteFile(data / "metadata.sqlite")
    store.delete(f"/admin/partitioned-topics/public/default/persistent/{name}")
    store.delete(f"/managed-ledgers/public/default/persistent/{name}-partition-0")
    store.close()


def test_batches_follow_each_other_without_gap_or_overlap(tmp_path: Path) -> None:
    make(tmp_path, partitions=2)
    running = stream(tmp_path, maxOffsetsPerTrigger=30)
    limit = running.default_limit()
    assert isinstance(limit, ReadMaxRows)
    at = running.initial()
    assert from_json(at) == {("t", 0): 0, ("t", 1): 0}
    seen: list[int] = []
    while (end := running.next(at, limit)) != at:
        assert 0 < sum(from_json(end).values()) - sum(from_json(at).values()) <= 31
        seen += offsets(running, at, end)
        running.done(end)
        at = end
    assert sorted(seen) == sorted(list(range(77)) * 2)
    assert from_json(running.latest()) == from_json(at)
    running.close()


def test_min_offsets_wait_but_not_for_ever_and_not_at_first() -> None:
    now = [0.0]
    delay = Delay(100, 5000, clock=lambda: now[0])
    assert not delay.waits(1)
    assert delay.waits(99)
    assert not delay.waits(100)
    now[0] = 4.9
    assert delay.waits(99)
    now[0] = 5.0
    assert not delay.waits(99)
    assert delay.waits(99)
    assert not Delay(None, 0).waits(0)


def test_min_offsets_hold_a_trigger_back_but_not_the_last_one(tmp_path: Path) -> None:
    writer, (partition,) = make(tmp_path)
    running = stream(tmp_path, minOffsetsPerTrigger=50, maxTriggerDelay="1h")
    assert isinstance(running.default_limit(), ReadMinRows)
    first = running.next(running.initial(), running.default_limit())
    fill(partition, 3)
    partition.close_ledger()
    writer.finish()
    assert running.next(first, running.default_limit()) == first
    assert from_json(running.next(first, ReadAllAvailable())) == {("t", 0): partition.next_offset}
    running.aim()
    assert from_json(running.next(first, running.default_limit())) == {("t", 0): partition.next_offset}
    running.close()


def test_available_now_does_not_see_what_comes_later(tmp_path: Path) -> None:
    writer, (partition,) = make(tmp_path)
    running = stream(tmp_path)
    running.aim()
    fill(partition, 3)
    partition.close_ledger()
    writer.finish()
    end = running.next(running.initial(), running.default_limit())
    assert from_json(end) == {("t", 0): 77}
    assert running.next(end, running.default_limit()) == end
    running.close()


def test_new_partitions_begin_at_their_start(tmp_path: Path) -> None:
    make(tmp_path)
    running = stream(tmp_path, startingOffsets="latest")
    start = running.initial()
    make(tmp_path, partitions=2)
    end = running.next(start, ReadAllAvailable())
    assert from_json(end) == {("t", 0): 77, ("t", 1): 77}
    assert offsets(running, start, end) == list(range(77))
    running.close()


@pytest.mark.parametrize("seen_by", ["next", "slices"])
def test_a_topic_made_anew_is_not_taken_for_the_old_one(tmp_path: Path, seen_by: str) -> None:
    make(tmp_path)
    careful, careless = stream(tmp_path), stream(tmp_path, failOnDataLoss=False)
    start = careful.initial()
    end = careful.next(start, ReadMaxRows(40))
    anew(tmp_path)
    with pytest.raises(DataLost, match=r"topic t was deleted and made anew.*failOnDataLoss"):
        careful.next(end, ReadAllAvailable()) if seen_by == "next" else careful.slices(start, end)
    with pytest.warns(UserWarning, match="made anew"):
        renewed = careless.next(end, ReadAllAvailable())
    assert ids_of(renewed) != ids_of(end)
    with pytest.warns(UserWarning, match="made anew"):
        assert offsets(careless, end, renewed) == list(range(77))
    assert careless.next(renewed, ReadAllAvailable()) == renewed
    careful.close()
    careless.close()


def test_a_deleted_topic_is_an_error_or_passed_over(tmp_path: Path) -> None:
    make(tmp_path)
    careful, careless = stream(tmp_path), stream(tmp_path, failOnDataLoss=False)
    start = careful.initial()
    end = careful.next(start, ReadMaxRows(40))
    delete(tmp_path)
    with pytest.raises(ValueError, match="there is no topic 't'"):
        careful.next(end, ReadAllAvailable())
    with pytest.warns(UserWarning, match="gone or not subscribed"):
        assert careless.next(end, ReadAllAvailable()) == end
    with warnings.catch_warnings(record=True) as told:
        assert careless.slices(start, end) == []
    assert "t-0 is gone" in {str(each.message) for each in told}
    careful.close()
    careless.close()


def test_a_checkpoint_of_another_topic_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    other = stream(tmp_path)
    for fail in (True, False):
        with pytest.raises(ValueError, match="the checkpoint is one of flights, but the query reads t"):
            other.next({"flights": {"0": 5}, "@ids": {"flights": "x"}}, ReadAllAvailable())
        other = stream(tmp_path, failOnDataLoss=not fail)
    with pytest.raises(ValueError, match="not one of this source"):
        other.next({"logOffset": 3}, ReadAllAvailable())


def test_offsets_below_the_log_start_are_an_error_or_passed_over(tmp_path: Path) -> None:
    writer, (partition,) = make(tmp_path)
    fill(partition, 10)
    partition.close_ledger()
    partition._ledgers.pop(0)
    writer.finish()
    start = {"t": {"0": 3}}
    careful, careless = stream(tmp_path), stream(tmp_path, failOnDataLoss=False)
    end = careful.next(start, ReadAllAvailable())
    with pytest.raises(DataLost, match="t-0 begins at offset 77; 3 is gone"):
        careful.slices(start, end)
    with pytest.warns(UserWarning, match="3 is gone"):
        assert offsets(careless, start, end) == list(range(77, partition.next_offset))
    ahead = {"t": {"0": partition.next_offset + 5}}
    with pytest.raises(DataLost, match=f"ends at offset {partition.next_offset}, and was read up to"):
        careful.next(ahead, ReadAllAvailable())
    with pytest.raises(DataLost, match="was asked for"):
        careful.slices({"t": {"0": 100}}, ahead)
    careful.close()
    careless.close()


def test_a_running_stream_pins_what_it_has_still_to_read(tmp_path: Path) -> None:
    make(tmp_path)
    running, free = stream(tmp_path, maxOffsetsPerTrigger=30), stream(tmp_path, pin=False)
    assert needed_offset(tmp_path, LOG) is None
    start = running.initial()
    end = running.next(start, running.default_limit())
    assert needed_offset(tmp_path, LOG) == 0
    running.slices(start, end)
    running.done(end)
    assert needed_offset(tmp_path, LOG) == from_json(end)["t", 0]  # type: ignore[index]
    free.next(start, ReadAllAvailable())
    running.close()
    assert needed_offset(tmp_path, LOG) is None
