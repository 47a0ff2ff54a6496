"""``df.write.format("magnetar")`` and ``writeStream``: rows to topics, as whole record batches.

Options are in `magnetar.pipeline.sink_options`, columns in `magnetar.pipeline.sink_rows`. Exactly once is staged and
published by `magnetar.pipeline.sink_staging` and `sink_publish`; at least once is sent by the tasks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from magnetar.pipeline.sink_options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass(frozen=True)
class WrittenRecords(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver: how many records, and the file that holds them if they were staged."""

    records: int
    query: str | None = None
    staged: str | None = None


def make_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch; raise what is wrong with options or columns."""
    from magnetar.pipeline.sink_options import parse_sink_options
    from magnetar.pipeline.sink_rows import check_columns

    if overwrite:
        raise AnalysisException("Save mode overwrite not allowed for magnetar. Topics only grow: use append.")
    found = parse_sink_options(options, streaming=False)
    check_columns(schema, found)
    return BatchWriter(found)


def make_stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Return the writer of a stream; raise what is wrong with options or columns."""
    from magnetar.pipeline.sink_options import parse_sink_options
    from magnetar.pipeline.sink_rows import check_columns

    found = parse_sink_options(options, streaming=True)
    check_columns(schema, found)
    return StreamWriter(found)


def _write(
    options: SinkOptions, iterator: Iterator[pa.RecordBatch], query: str | None, batch_id: int | None
) -> WrittenRecords:
    """Stage or send a task's rows."""
    from magnetar.pipeline.sink_direct import send_rows
    from magnetar.pipeline.sink_staging import StagingDirectory, stage_rows

    context = TaskContext.get()
    assert context is not None
    if options.staging is None:
        return WrittenRecords(send_rows(iterator, options, first_partition=context.partitionId()))
    assert query is not None
    assert batch_id is not None
    name = f"{context.partitionId():08d}-{context.taskAttemptId()}"
    records, path = stage_rows(
        iterator,
        options,
        StagingDirectory(options.staging, query),
        batch_id,
        name,
        first_partition=context.partitionId(),
    )
    return WrittenRecords(records, query, path)


def _commit(options: SinkOptions, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
    """Publish what was staged, once."""
    from magnetar.pipeline.sink_publish import publish

    written = [each for each in messages if isinstance(each, WrittenRecords)]
    queries = {each.query for each in written}
    assert len(written) == len(messages)
    if options.staging is None or not written:
        return
    (query,) = queries
    assert query is not None
    publish(options, query, batch_id, [each.staged for each in written if each.staged is not None])


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a frame. With a transaction all or nothing, and once; otherwise as Spark's Kafka sink does."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRecords:
        transaction = self._options.transaction
        if transaction is None:
            return _write(self._options, iterator, None, None)
        return _write(self._options, iterator, transaction.app_id, transaction.version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.transaction is not None:
            _commit(self._options, messages, self._options.transaction.version)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a stream, batch by batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRecords:
        context = TaskContext.get()
        assert context is not None
        query, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        assert query is not None
        assert batch_id is not None
        return _write(self._options, iterator, query, int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(self._options, messages, batchId)
