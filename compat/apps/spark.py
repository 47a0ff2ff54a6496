"""Spark's own Kafka sink: a topic is copied by a stream, while its program and the broker are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from waiting import same

from apps import topics
from apps.flow import Records
from apps.java import Application
from apps.topics import until
from benchmarks.peers.server import Server

PROGRAM = Path(__file__).with_name("spark_copy.py")
JARS = Path(__file__).resolve().parent.parent / "spark-kafka.sh"
RECORDS = 40_000
KILLS = 2


def stream(broker: Server, folder: Path) -> None:
    """Spark's Kafka sink, which writes at least once: its program and the broker are killed, no record is lost"""
    asked = [JARS, sys.executable]
    jars = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    for name in ("from", "to"):
        topics.make(broker.address, name, 4)

    def start() -> Application:
        given = (PROGRAM, broker.address, "from", "to", folder / "checkpoint", jars)
        return Application(folder / "spark.log", *given, script=Path(sys.executable))

    def copied() -> set[int]:
        return {int(message.value()) for message in topics.read(broker.address, "to")}

    with Records(broker.address, "from", RECORDS) as flow:
        for _ in range(KILLS):
            before = len(copied())
            with start() as program:
                until("more records", lambda least=before + 500: len(copied()) > least)
                time.sleep(random.random())
                same(flow.written < RECORDS, True, "records are still to come")
                program.kill()
        with start() as program:
            until("more records", lambda: len(copied()) > before + 1000)
            broker.kill()
            broker.start()
            flow.end()
            until("all records", lambda: copied() == set(range(RECORDS)))
            program.check()
