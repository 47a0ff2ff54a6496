"""pulsar-perf, the load tool of Pulsar's release, and what it prints as values.

Rates run from the moment its producer or consumer is there to the last message, as its log tells to a millisecond; what
it calls aggregated counts the start of its client among a producer's time.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from benchmarks.peers.pulsar import pulsar_home

_TIMEOUT_S = 300
_MEMORY = (
    "-ml",
    "64M",
)  # of messages not yet acknowledged: the Java client's own default, which the tool lifts
_STAMP = r"^(\S+T\S+) .*"
_PRODUCING = re.compile(_STAMP + r"Created \d+ producers", re.M)
_RECEIVING = re.compile(_STAMP + r"Start receiving from", re.M)
_DONE = re.compile(_STAMP + r"-- DONE ", re.M)
_INTERVAL = re.compile(r"Throughput received: .*?- med: +([\d.]+) .*?- 99pct: +([\d.]+) ", re.M)
_AGGREGATED = re.compile(r"Aggregated latency stats .*?- med: +([\d.]+) .*?- 99pct: +([\d.]+) ")


class Latency(NamedTuple):
    """Percentiles in ms."""

    p50_ms: float
    p99_ms: float


class Latencies(NamedTuple):
    """``receive`` is from publishing to receiving, in whole ms; ``send`` from sending to the receipt."""

    receive: Latency
    send: Latency


def produce(url: str, topic: str, *, messages: int, size: int) -> float:
    """Send at full speed from one producer; give the messages per second."""
    with _running("produce", url, topic, messages, "-s", size, "-r", 10_000_000, *_MEMORY) as running:
        output = running.output()
    return messages / _seconds(output, _PRODUCING)


def consume(url: str, topic: str, *, messages: int, subscription: str) -> float:
    """Read from the beginning with one consumer of a new subscription; give the messages per second."""
    given = ("-ss", subscription, "-sp", "Earliest")
    with _running("consume", url, topic, messages, *given) as running:
        output = running.output()
    return messages / _seconds(output, _RECEIVING)


def latency(url: str, topic: str, *, rate: int, seconds: int, size: int) -> Latencies:
    """Send ``rate`` messages a second to a consumer that waits for them.

    The tool tells what a consumer saw every 10 s. The first of these is left out, as both clients are young in it; of
    the others this gives the medians. So ``seconds`` is 21 at least.
    """
    messages = rate * seconds
    with (
        _running("consume", url, topic, messages, "-ss", "latency", "-sp", "Earliest") as reader,
        _running("produce", url, topic, messages, "-s", size, "-r", rate, *_MEMORY) as writer,
    ):
        written, read = writer.output(), reader.output()
    intervals = [Latency(float(p50), float(p99)) for p50, p99 in _INTERVAL.findall(read)][1:]
    if not intervals:
        raise RuntimeError(f"{seconds} s are too few: the consumer tells its latency only every 10 s")
    p50, p99 = _AGGREGATED.findall(written)[-1]
    receive = Latency(*(statistics.median(values) for values in zip(*intervals, strict=True)))
    return Latencies(receive, Latency(float(p50), float(p99)))


class _Running:
    """The tool as it runs, and the file that takes what it says."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self._process = process
        self._said = said

    def output(self) -> str:
        """Wait until it ends; give all it said."""
        code = self._process.wait(_TIMEOUT_S)
        self._said.seek(0)
        text = self._said.read().decode()
        if code or not _DONE.search(text):
            raise RuntimeError(f"{self._process.args!r} failed:\n{text[-4000:]}")
        return text


@contextmanager
def _running(tool: str, url: str, topic: str, messages: int, *given: object) -> Iterator[_Running]:
    executable = pulsar_home() / "bin" / "pulsar-perf"
    command = [str(executable), tool, "-u", url, "-m", str(messages), *map(str, given), topic]
    environment = {**os.environ, "OPTS": "-Xms1g -Xmx1g"}
    with TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
        )
        try:
            yield _Running(process, said)
        finally:
            process.kill()
            process.wait()


def _seconds(output: str, begin: re.Pattern[str]) -> float:
    (first,), last = begin.findall(output)[:1], _DONE.findall(output)[-1]
    return (_time(last) - _time(first)).total_seconds()


def _time(stamp: str) -> datetime:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S,%f%z")
