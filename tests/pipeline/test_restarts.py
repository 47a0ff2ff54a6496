"""A job that is killed at any moment ends, once it is let alone, with a table equal to its topic: proven by audit.

``MAGNETAR_KILLS`` says how often each is killed (default a few); ``MAGNETAR_SEED`` chooses the moments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.pipeline.audit import AuditRequest, audit
from tests.process import BrokerProcess

KILLS = int(os.environ.get("MAGNETAR_KILLS", "3"))
SEED = int(os.environ.get("MAGNETAR_SEED", "0")) or Random().randrange(1, 1 << 30)
RECORDS_PER_S = 4_000  # at most: a machine that has more to do takes as long as it takes
RECORDS_PER_KILL = 2_000  # at least, or the table would hardly be written when its job is killed
SECONDS_TO_END = 600

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900 + 60 * KILLS)]


class Job:
    """One run of ``restart_job``, with the processes that it starts."""

    def __init__(self, kind: str, data: Path, table: Path, stop: Path, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.pipeline.restart_job", kind, data, "t", table, stop]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, text=True
            )

    def wait_until_it_follows(self) -> bool:
        """Return whether it works; it may have ended before."""
        assert self._process.stdout is not None
        return any(line.startswith("following") for line in self._process.stdout)

    def kill(self, victim: str) -> None:
        """Kill all of the job, or Spark's JVM alone, or the Python workers alone, as kill -9 does."""
        group = members(self._process.pid)
        chosen = {
            "all": lambda: list(group),
            "jvm": lambda: [pid for pid, words in group.items() if "java" in words.split(" ")[0]],
            "worker": lambda: [pid for pid, words in group.items() if "pyspark.daemon" in words],
        }[victim]()
        for pid in chosen or [self._process.pid]:
            signal_one(pid)
        if victim != "worker" or not chosen:
            self.reap()

    def reap(self) -> None:
        """End what is left of it, and wait."""
        deadline = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in members(self._process.pid):
            signal_one(pid)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def ended_well(self) -> bool:
        """Wait for its end; tell whether it did what it was told."""
        try:
            return self._process.wait(SECONDS_TO_END) == 0
        finally:
            self.reap()


def members(group: int) -> dict[int, str]:
    """Return the live processes of a session with their command lines."""
    found = {}
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdecimal() and os.getsid(int(each.name)) == group:
                found[int(each.name)] = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    return {pid: words for pid, words in found.items() if words}


def signal_one(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Load:
    """Records that come in all the time, from a thread; ``acknowledged`` counts those that the topic has."""

    def __init__(self, address: str, random: Random) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("t", 3, 1)])["t"].result(30)
        self.acknowledged = 0
        self._random = random
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_until(self, records: int) -> None:
        """Wait until the topic has so many records."""
        while self.acknowledged < records:
            assert self._thread.is_alive(), f"the producer ended after {self.acknowledged} records"
            time.sleep(0.05)

    def _run(self) -> None:
        number = 0
        while not self._over.wait(0.05):
            for _ in range(RECORDS_PER_S // 20):
                value = self._random.randbytes(self._random.randrange(80))
                headers = [("n", str(number).encode())] if number % 10 == 0 else None
                self._producer.produce("t", value, str(number % 97), headers=headers, on_delivery=self._count)
                number += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _count(self, error: object, _: object) -> None:
        self.acknowledged += error is None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize("kind", ["spark", "direct"])
def test_a_job_killed_at_random_moments_ends_with_a_table_equal_to_its_topic(
    kind: str, spark: Any, tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    random = Random(SEED)
    print(f"MAGNETAR_SEED={SEED} MAGNETAR_KILLS={KILLS}")
    broker = start_broker(tmp_path / "data", "--set", "flush=os")
    table, stop, log = tmp_path / "table", tmp_path / "stop", tmp_path / "job.log"
    victims = ["all", "jvm", "worker"] if kind == "spark" else ["all"]
    with Load(broker.address, Random(SEED)) as load:
        for number in range(KILLS):
            job = Job(kind, broker.data, table, stop, log)
            if number % 5 < 4:  # one in five dies while it starts
                assert job.wait_until_it_follows(), log.read_text()[-3000:]
            load.wait_until((number + 1) * RECORDS_PER_KILL)
            time.sleep(random.uniform(0, 3))
            victim = victims[number % len(victims)]
            job.kill(victim)
            if victim == "worker":  # the query fails by it, or tries its task again
                time.sleep(random.uniform(0, 1))
                job.kill("all")
    stop.touch()
    job = Job(kind, broker.data, table, stop, log)
    assert job.ended_well(), log.read_text()[-3000:]
    found = audit(spark, AuditRequest("t", str(table), broker.data))
    assert found.topic_records == load.acknowledged
    assert found.is_equal, found.counts


def test_the_audit_sees_what_a_job_that_is_not_exactly_once_does(
    spark: Any, tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    """The same by a job that forgets how far it was: its table has records twice, and the audit says so."""
    broker = start_broker(tmp_path / "data", "--set", "flush=os")
    with Load(broker.address, Random(1)) as load:
        load.wait_until(1_000)
    table = tmp_path / "table"
    source = spark.read.format("magnetar").option("subscribe", "t").option("includeHeaders", "true")
    for _ in range(2):
        source.load(str(broker.data)).write.mode("append").parquet(str(table))
    found = audit(spark, AuditRequest("t", str(table), broker.data))
    assert not found.is_equal
    assert found.counts["doubled"] == found.topic_records == load.acknowledged
