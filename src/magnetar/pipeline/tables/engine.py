"""Who writes the files: threads of this process, or a Spark cluster. Both run the same tasks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.pipeline.tables.files import DataFile, read_in_order

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from magnetar.pipeline.tables.directory import TableDirectory

Task = Callable[[], list[DataFile]]
"""What an engine runs, perhaps on another machine: it must pickle."""

ANSWER = "answer binary"
"""What Spark tasks give back: pickled lists of files."""


class Engine(Protocol):
    """Runs tasks side by side."""

    parallelism: int

    def run(self, tasks: Sequence[Task]) -> Iterator[list[DataFile]]:
        """Return what the tasks wrote, in any order, as they end; the first error of a task is raised."""
        ...


class LocalEngine:
    """Threads: decoding and writing both happen outside of Python's lock."""

    def __init__(self, threads: int | None = None) -> None:
        self.parallelism = threads or len(os.sched_getaffinity(0))

    def run(self, tasks: Sequence[Task]) -> Iterator[list[DataFile]]:
        with ThreadPoolExecutor(self.parallelism) as pool:
            running = [pool.submit(task) for task in tasks]
            try:
                for each in as_completed(running):
                    yield each.result()
            finally:
                for each in running:
                    each.cancel()


class SparkEngine:
    """Spark's tasks, in the session given: local, a cluster's, or a remote one by Spark Connect."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.parallelism = _cores(spark)

    def run(self, tasks: Sequence[Task]) -> Iterator[list[DataFile]]:
        if not tasks:
            return
        pickled = [pickle.dumps(task) for task in tasks]
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        yield from answers(numbers.mapInArrow(partial(_run_pickled, pickled), ANSWER))


def answers(frame: Any) -> Iterator[list[DataFile]]:
    """Run a frame of `ANSWER` and give what its tasks wrote."""
    for row in frame.collect():
        yield pickle.loads(bytes(row[0]))


def answer(files: list[DataFile]) -> pa.RecordBatch:
    """Return a task's answer as Spark wants it."""
    import pyarrow as pa

    from magnetar.records.columns import binary

    return pa.RecordBatch.from_arrays([binary([pickle.dumps(files)], pa.binary())], names=["answer"])


def rows_by_tasks(
    spark: SparkSession,
    place: TableDirectory,
    files: Sequence[DataFile],
    schema: pa.Schema,
    columns: StructType,
) -> DataFrame:
    """Return the rows of files as a frame, without those that are deleted, which Spark's own reader does not know."""
    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(partial(_rows, place, tuple(files), schema), columns)


def _rows(
    place: TableDirectory, files: Sequence[DataFile], schema: pa.Schema, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from (rows for _, rows in read_in_order(place, [files[number]], schema))


def _run_pickled(pickled: list[bytes], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield answer(pickle.loads(pickled[number])())


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context, and says so by an error of its own
        return int(spark.conf.get("spark.default.parallelism", None) or 8)
