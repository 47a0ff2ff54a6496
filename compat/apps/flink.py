"""Apache Flink: a topic is copied by its exactly-once sink, while the program and the broker are killed."""

from __future__ import annotations

import random
import time
from pathlib import Path

from waiting import same

from apps import topics
from apps.flow import Records
from apps.java import Application
from apps.topics import until
from benchmarks.peers.server import Server

PROGRAM = Path(__file__).with_name("FlinkCopy.java")
SCRIPT = Path(__file__).resolve().parent.parent / "flink.sh"
RECORDS = 30_000
KILLS = 3


def copy_once(broker: Server, folder: Path) -> None:
    """Flink's exactly-once sink: the program is killed and goes on from its checkpoint, the broker is killed, too"""
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    for name in ("from", "to"):
        topics.make(broker.address, name, 4)

    def start() -> Application:
        go_on = newest(checkpoints)
        given = (PROGRAM, broker.address, "from", "to", checkpoints, *go_on)
        return Application(folder / "flink.log", *given, script=SCRIPT)

    with Records(broker.address, "from", RECORDS) as flow:
        for number in range(KILLS):
            before = len(copied(broker))
            with start() as program:
                # What is read here is committed: so checkpoints have ended since the program began.
                until("more records", lambda least=before + 500: len(copied(broker)) > least)
                time.sleep(random.random())
                same(flow.written < RECORDS, True, "records are still to come")
                if number == 1:
                    broker.kill()
                    broker.start()
                program.kill()
        with start() as program:
            flow.end()
            until("all records", lambda: len(set(copied(broker))) == RECORDS)
            same(sorted(copied(broker)), sorted(f"{n}" for n in range(RECORDS)), "records, each once")
            program.check()


def copied(broker: Server) -> list[str]:
    return [message.value().decode() for message in topics.read(broker.address, "to")]


def newest(checkpoints: Path) -> list[Path]:
    """The checkpoint to go on from, if there is one."""
    done = sorted(checkpoints.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
    return [file.parent for file in done[-1:]]
