"""A process that reads one source with a Spark session of its own, as a job does; the benchmark tells it what and when.

Two sources in one JVM spoil each other's figures: code that it compiled for the rows of one is thrown away when the
other's come, and compiled anew while the clock runs.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.peers.server import Server
from benchmarks.spark_bars import READY
from benchmarks.spark_read import Readers, Source, Topic
from benchmarks.spark_session import Usage, session

_WARM_UPS = 8  # by then the rates of either source hardly rise


class Figures(NamedTuple):
    """How long one reading took, and the processor's seconds of Spark, its workers and the broker."""

    seconds: float
    cpu_seconds: float


class Reading:
    """The process, from `__enter__` to `__exit__`; ``processors`` are those it may use, by default all.

    With ``ready`` it reads a server's slices as if their rows lay there ready-made.
    """

    def __init__(
        self, server: Server, scratch: Path, cores: int, processors: set[int] | None = None, *, ready: bool = False
    ) -> None:  # fmt: skip
        self.server = READY if ready else server.name
        self._broker = server
        self._ready = ready
        name = "ready" if ready else type(server).__name__.lower()
        self._scratch = scratch / f"{name}-{cores}-{len(processors or ())}"
        self._cores = cores
        self._processors = processors

    def __enter__(self) -> Self:
        spawn = multiprocessing.get_context("spawn")  # a JVM cannot be forked
        self._asks, its_end = spawn.Pipe()
        source = Source.of(self._broker, ready=self._ready)
        given = (its_end, source, self._scratch, self._cores, self._processors)
        self._process = spawn.Process(target=_serve, args=given, daemon=True)
        self._process.start()
        its_end.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._asks.close()
        self._process.join()

    def warm_up(self, topic: Topic) -> None:
        for _ in range(_WARM_UPS):
            self.read("to_noop", topic)

    def read(self, way: str, topic: Topic) -> Figures:
        """Read a topic one way of `Readers`."""
        cpu = self._broker.cpu_seconds()
        seconds, used = self._ask(way, topic)
        return Figures(seconds, used + self._broker.cpu_seconds() - cpu)

    def worker_mb(self) -> float:
        """Return the most memory that a Python worker ever had."""
        return self._ask("worker_mb", None)[0]

    def _ask(self, what: str, topic: Topic | None) -> tuple[float, float]:
        self._asks.send((what, topic))
        answer: tuple[float, float] | str = self._asks.recv()
        if isinstance(answer, str):
            raise RuntimeError(f"{what} of {self.server}: {answer}")
        return answer


def _serve(asks: Connection, source: Source, scratch: Path, cores: int, processors: set[int] | None) -> None:
    if processors:
        os.sched_setaffinity(0, processors)
    spark = session(cores)
    readers, usage = Readers(spark, source, scratch), Usage()
    try:
        while True:
            way, topic = asks.recv()
            try:
                if way == "worker_mb":
                    asks.send((usage.worker_mb(), 0.0))
                else:
                    asks.send(_timed(readers, way, topic, usage))
            except Exception as error:  # Java's errors do not pickle
                asks.send(f"{type(error).__name__}: {error}")
    except EOFError:
        spark.stop()


def _timed(readers: Readers, way: str, topic: Topic, usage: Usage) -> tuple[float, float]:
    os.sync()  # what was written before is not to hold this up
    # Then at once: where a host takes freed memory back within seconds, as some do, whether a table's pages come from
    # the table before it or from the host would depend on how long the disk took.
    readers.clear()
    cpu = usage.cpu_seconds()
    began = time.perf_counter()
    getattr(readers, way)(topic)
    return time.perf_counter() - began, usage.cpu_seconds() - cpu
