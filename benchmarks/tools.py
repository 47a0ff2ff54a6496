"""Kafka's own performance tools as load, and what they print as values."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.jars import java

_TOOLS = "org.apache.kafka.tools"
_JVM = ("-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")  # as the release's scripts start these tools
_PRODUCED = re.compile(r"([\d.]+) records/sec .*?, ([\d.]+) ms avg latency.*?, (\d+) ms 99th")
_PERCENTILES = re.compile(r"50th = ([\d.]+), 99th = ([\d.]+)")


class Produced(NamedTuple):
    """What producer-perf-test says."""

    records_per_s: float
    """After the warm-up."""

    whole_records_per_s: float
    """From the first record on: what the tool says by itself."""

    p99_ms: float


class Latency(NamedTuple):
    """Percentiles in ms."""

    p50_ms: float
    p99_ms: float


def producer_perf(
    address: str, topic: str, *, records: int, size: int, warm_up: int = 0, properties: tuple[str, ...] = (),
    payload: Path | None = None,
) -> Produced:  # fmt: skip
    """Run producer-perf-test at full speed; give its rates. ``payload`` has values, one a line."""
    content = ("--record-size", size) if payload is None else ("--payload-file", payload)
    output = _run(
        "ProducerPerformance",
        *("--bootstrap-server", address, "--topic", topic, "--throughput", "-1"),
        *("--num-records", records, *content, "--warmup-records", warm_up),
        *("--command-property", "acks=all", *properties),
    )
    lines = _PRODUCED.findall(output)  # of the whole run and, with a warm-up, of what followed it
    rate, _, p99 = lines[-1]
    return Produced(float(rate), float(lines[0][0]), float(p99))


def consumer_perf(address: str, topic: str, *, records: int, properties: tuple[str, ...] = ()) -> float:
    """Run consumer-perf-test over the whole topic; give its ``fetch.MB.sec``."""
    output = _run(
        "ConsumerPerformance",
        *("--bootstrap-server", address, "--topic", topic, "--num-records", records, "--timeout", 60_000),
        *(given for each in properties for given in ("--command-property", each)),
    )
    return _told(output)["fetch.MB.sec"]


def share_consumer_perf(address: str, topic: str, group: str, *, records: int, threads: int) -> float:
    """Run share-consumer-perf-test over the whole topic; give its records a second, from the first to the last."""
    output = _run(
        "ShareConsumerPerformance",
        *("--bootstrap-server", address, "--topic", topic, "--group", group),
        *("--num-records", records, "--threads", threads, "--timeout", 60_000),
    )
    return _told(output)["nMsg.sec"]


def _told(output: str) -> dict[str, float]:
    """Return the figures under the names that stand above them."""
    names, values = (line.split(", ") for line in output.strip().splitlines()[-2:])
    return {name: float(value) for name, value in zip(names, values, strict=True) if not value.count(":")}


def e2e_latency(address: str, topic: str, *, records: int, size: int) -> Latency:
    """Run e2e-latency: one record at a time, there and back (whole milliseconds only)."""
    output = _run("EndToEndLatency", address, topic, records, "all", size)
    p50, p99 = _PERCENTILES.findall(output)[-1]
    return Latency(float(p50), float(p99))


def _run(tool: str, *arguments: object) -> str:
    command = java(f"{_TOOLS}.{tool}", *map(str, arguments), options=_JVM, libs="kafka-tools")
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{tool} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
