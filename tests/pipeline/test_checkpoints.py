"""A query that was killed while Spark wrote down its first batch starts again, once what is left of that is gone."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from magnetar.pipeline.checkpoints import clear_unbegun
from tests.pipeline.test_stream import make


def unfinished(checkpoint: Path, batch: int, log: str = "offsets") -> Path:
    """Leave what a kill leaves that comes before Spark renames a batch's file; give that file."""
    (checkpoint / log).mkdir(parents=True, exist_ok=True)
    path = checkpoint / log / f".{batch}.{uuid.uuid4()}.tmp"
    path.touch()
    path.with_name(f".{path.name}.crc").touch()
    return path


def test_only_what_never_began_is_cleared(tmp_path: Path) -> None:
    began, never = tmp_path / "a" / "0", tmp_path / "b" / "0"
    kept = [unfinished(began, 1), began / "offsets" / "0", unfinished(began, 0, "commits")]
    kept += [never / "metadata", never / "offsets" / "notes.txt", never / "state" / "0" / ".1.tmp"]
    for each in kept:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.touch()
    left = unfinished(never, 0)
    assert set(clear_unbegun(tmp_path)) == {left, left.with_name(f".{left.name}.crc")}
    assert all(each.exists() for each in kept)
    assert not left.exists()
    assert clear_unbegun(tmp_path) == ()
    assert clear_unbegun(tmp_path / "nothing") == ()


def test_a_query_without_offsets_that_has_commits_is_left_for_spark_to_refuse(tmp_path: Path) -> None:
    left = unfinished(tmp_path, 0)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    assert clear_unbegun(tmp_path) == ()
    assert left.exists()


@pytest.mark.spark
@pytest.mark.slow
def test_spark_starts_again(spark: Any, tmp_path: Path) -> None:
    _, partitions = make(tmp_path / "data")
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "table"
    unfinished(checkpoint, 0)
    source = (
        spark.readStream.format("magnetar").option("subscribe", "t").option("startingOffsets", "earliest")
    )
    sink = source.load(str(tmp_path / "data")).writeStream.format("parquet")
    sink = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        sink.start(str(table)).awaitTermination()
    assert len(clear_unbegun(checkpoint)) == 2
    sink.start(str(table)).awaitTermination()
    assert spark.read.parquet(str(table)).count() == partitions[0].next_offset
