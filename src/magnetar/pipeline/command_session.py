"""A Spark session for a command of the terminal: quiet, on this machine unless told otherwise, with a progress bar.

What Spark says goes to a log file. ``SPARK_REMOTE`` (Spark Connect) and ``--master`` name a cluster; everything else
that a cluster needs stands in Spark's own ``spark-defaults.conf``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.pipeline.stderr import stderr_to
from magnetar.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S = 0.2


@contextmanager
def command_session(name: str, master: str | None = None, memory: str = "2g") -> Iterator[SparkSession]:
    """Return a session that ends with the block; one that is there already is used and left alone."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        running = SparkSession.active()  # also one of another thread, which getActiveSession() does not see
    except PySparkRuntimeError:
        running = None
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName(name)
    if "SPARK_REMOTE" not in os.environ:
        master = master or "local[*]"
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", worker_python(master))
        builder = builder.master(master).config("spark.driver.memory", memory)
    for setting, value in _SETTINGS.items():
        builder = builder.config(setting, value)
    log = Path(tempfile.gettempdir(), f"{name.replace(' ', '-')}-{os.getpid()}.log")
    with stderr_to(log):  # where the JVM, once started, goes on writing
        session = builder.getOrCreate()
    try:
        yield session
    except BaseException as error:
        error.add_note(f"What Spark said is in {log}")
        raise
    else:
        with suppress(OSError):
            log.unlink()
    finally:
        session.stop()


_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",  # rows reach the JVM sooner than by TCP
    "spark.python.authenticate.socketTimeout": "120s",  # a stream's Python may take long to start on a busy machine
}


@contextmanager
def progress(spark: SparkSession, text: str, *, hidden: bool = False) -> Iterator[None]:
    """Show, on standard error of a terminal, how many tasks of the jobs that run in the block are done."""
    context = getattr(spark, "_sc", None)
    if hidden or context is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
    over = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)

        def watch() -> None:
            seen: dict[int, tuple[int, int]] = {}
            while not over.wait(_EVERY_S):
                tracker = context.statusTracker()
                for stage_id in tracker.getActiveStageIds():
                    stage = tracker.getStageInfo(stage_id)
                    if stage is not None:
                        seen[stage_id] = stage.numCompletedTasks, stage.numTasks
                active = set(tracker.getActiveStageIds())
                done = sum(done if each in active else tasks for each, (done, tasks) in seen.items())
                bar.update(task, completed=done, total=sum(tasks for _, tasks in seen.values()) or None)

        watcher = threading.Thread(target=watch, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
