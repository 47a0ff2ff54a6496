"""A Spark session, and what its processes use: the JVM, executor too, and Python."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.spark_connector import connector_jars
from magnetar.pipeline.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(cores: int) -> SparkSession:
    """Start Spark on so many cores; one that runs ends before."""
    from pyspark.sql import SparkSession

    import magnetar.pipeline.slice_reader  # noqa: F401  (its machine code is made once per machine, not once per run)

    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()
    settings = {
        "spark.driver.memory": "4g",
        "spark.jars": connector_jars(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",  # as docs/spark-source.md advises
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Usage:
    """Processor time of this process and all that it started, and the memory of Python workers."""

    def __init__(self) -> None:
        self._workers: dict[int, int] = {}
        self._max_mb = 0.0

    def cpu_seconds(self) -> float:
        """Return the time used so far by the processes that are there now, and by those that ended."""
        self._note_memory()  # now already: Spark ends workers that have nothing to do
        # One that ends while we look is missing for an instant; time that was used is never less afterwards.
        return max(self._cpu_seconds() for _ in range(3))

    def _cpu_seconds(self) -> float:
        ticks = 0
        time.sleep(0.05)
        for pid in self._pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                own, with_children = sum(map(int, fields[11:13])), sum(map(int, fields[11:15]))
            except FileNotFoundError:
                continue
            if self._forgets_children(int(fields[1])):
                self._workers[pid] = own
            else:
                ticks += with_children
        return (ticks + sum(self._workers.values())) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _forgets_children(pid: int) -> bool:
        """Return whether a process ignores its children's end, as Spark's daemon does: their time is in nobody's."""
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except FileNotFoundError:
            return False
        ignored = next(line for line in lines if line.startswith("SigIgn:"))
        return bool(int(ignored.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)

    def worker_mb(self) -> float:
        """Return the most memory that any Python worker had, of all that were there at this or an earlier reading."""
        self._note_memory()
        return self._max_mb

    def _note_memory(self) -> None:
        for pid in self._pids():
            try:
                if b"pyspark.daemon" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    continue
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except FileNotFoundError:
                continue
            peak = next((line for line in lines if line.startswith("VmHWM:")), "VmHWM: 0 kB")
            self._max_mb = max(self._max_mb, int(peak.split()[1]) * 1024 / 1e6)

    def _pids(self) -> list[int]:
        found, left = [], [os.getpid()]
        while left:
            found.append(left.pop())
            left += _children(found[-1])
        return found


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
