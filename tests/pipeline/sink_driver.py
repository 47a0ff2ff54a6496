"""What Spark's driver and tasks do with the sink, without Spark, so that it can be killed many times in seconds.

    python -m tests.pipeline.sink_driver ADDRESS DIRECTORY BATCHES

Each batch is staged by several tasks, some of them twice, as speculation does it; which rows a task has differs from
attempt to attempt, as after a shuffle. ``DIRECTORY/committed`` stands for Spark's commit log.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa

from magnetar.pipeline.sink_options import parse_sink_options
from magnetar.pipeline.sink_publish import publish
from magnetar.pipeline.sink_staging import StagingDirectory, stage_rows

TASKS, ROWS = 3, 400
QUERY = "query"


def values(batch_id: int) -> list[str]:
    """Return what a batch has to write."""
    return [f"{batch_id}-{i}" for i in range(TASKS * ROWS)]


def main(address: str, directory: Path, batches: int) -> None:
    options = parse_sink_options(
        {
            "kafka.bootstrap.servers": address,
            "topic": "t",
            "stagingLocation": str(directory / "staging"),
            "kafka.batch.size": "2000",  # many small batches: more moments to be killed in
        },
        streaming=True,
    )
    assert options.staging is not None
    committed = directory / "committed"
    staging = StagingDirectory(options.staging, QUERY)
    for batch_id in range(int(committed.read_text()) + 1 if committed.exists() else 0, batches):
        rows = values(batch_id)
        random.shuffle(rows)
        files = []
        for task in range(TASKS):
            for attempt in range(random.choice((1, 1, 2))):
                mine = pa.RecordBatch.from_pydict({"value": rows[task * ROWS : (task + 1) * ROWS]})
                name = f"{task}-{attempt}"  # the same after a restart, as Spark's numbers of attempts are
                _, path = stage_rows([mine], options, staging, batch_id, name, first_partition=task)
            files.append(path)
        publish(options, QUERY, batch_id, files)
        draft = committed.with_suffix(".draft")
        draft.write_text(str(batch_id))
        draft.rename(committed)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
