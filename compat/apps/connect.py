"""Kafka Connect: a file becomes a topic becomes a file, while a worker and the broker are killed."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

from waiting import same

from apps import topics
from apps.flow import Flow
from apps.java import Application, plugins
from apps.topics import until
from benchmarks.peers.server import Server, free_port

LINES = 60_000
SETTINGS = """bootstrap.servers={address}
group.id=connect
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter.schemas.enable=false
offset.storage.topic=connect-offsets
config.storage.topic=connect-configs
status.storage.topic=connect-status
offset.storage.replication.factor=1
config.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=1000
session.timeout.ms=10000
heartbeat.interval.ms=1000
scheduled.rebalance.max.delay.ms=2000
listeners=HTTP://127.0.0.1:{port}
plugin.path={plugins}
plugin.discovery=service_load
"""


class Rest:
    """A worker's REST address."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def states(self, connector: str) -> list[str]:
        """Of a connector's tasks."""
        return [task["state"] for task in self.ask(f"/connectors/{connector}/status")["tasks"]]


def files(broker: Server, folder: Path) -> None:
    """Kafka Connect, distributed: a file to a topic to a file; a worker and the broker are killed, no line is lost"""
    source, sink = folder / "source.txt", folder / "sink.txt"
    source.write_text("")
    ports = (free_port(), free_port())
    workers = []
    for port in ports:
        file = folder / f"worker-{port}.properties"
        file.write_text(SETTINGS.format(address=broker.address, port=port, plugins=plugins()))
        workers.append(Application(folder / f"worker-{port}.log", "connect", file))
    rest = Rest(ports[0])
    with workers[0] as first, workers[1] as second:
        until("the workers", lambda: [Rest(port).ask("/connectors") for port in ports] == [[], []])
        new = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(source), "topic": "lines"}
        new |= {"topic.creation.default.partitions": "4", "topic.creation.default.replication.factor": "1"}
        new |= {"topic.creation.default.retention.ms": "86400000"}
        rest.ask("/connectors", {"name": "source", "config": new})
        write(source, 0, LINES // 3)
        until("the connector to make its topic", lambda: "lines" in topics.names(broker.address))
        new = {"connector.class": "FileStreamSink", "tasks.max": "4", "file": str(sink), "topics": "lines"}
        rest.ask("/connectors", {"name": "sink", "config": new})
        until("a third of the lines", lambda: len(lines(sink)) == LINES // 3)
        same(
            topics.partitions(broker.address, "lines"), [0, 1, 2, 3], "partitions as the connector wants them"
        )
        same(
            topics.config_of(broker.address, "lines")["retention.ms"],
            "86400000",
            "the connector's retention.ms",
        )
        second.kill()
        write(source, LINES // 3, 2 * LINES // 3)
        broker.kill()
        broker.start()
        write(source, 2 * LINES // 3, LINES)
        until("all lines", lambda: lines(sink) == {f"line {i}" for i in range(LINES)})
        until("all tasks to run", lambda: rest.states("sink") + rest.states("source") == ["RUNNING"] * 5)
        until(
            "the sink's group to have committed all",
            lambda: topics.lag(broker.address, "connect-sink", "lines") == 0,
        )
        rest.ask("/connectors/sink", method="DELETE")
        until("the sink to be gone", lambda: rest.ask("/connectors") == ["source"])
        first.check()


def files_once(broker: Server, folder: Path) -> None:
    """Connect's exactly-once sources: the worker with the task is killed, and the broker; no line is there twice"""
    source = folder / "source.txt"
    source.write_text("")
    ports = (free_port(), free_port())
    made = [folder / f"worker-{port}.properties" for port in ports]
    for port, file in zip(ports, made, strict=True):
        text = SETTINGS.format(address=broker.address, port=port, plugins=plugins())
        file.write_text(f"{text}exactly.once.source.support=enabled\n")

    def worker(number: int) -> Application:
        return Application(folder / f"worker-{ports[number]}.log", "connect", made[number])

    def runs_on() -> int:
        """Return which worker has the task, as the other one tells."""
        for port in ports:
            try:
                (task,) = Rest(port).ask("/connectors/source/status")["tasks"]
            except OSError:
                continue
            if task["state"] == "RUNNING":
                return ports.index(int(task["worker_id"].rpartition(":")[2]))
        raise AssertionError("no worker says that the task runs")

    def written() -> list[str]:
        there = topics.read(broker.address, "once") if "once" in topics.names(broker.address) else []
        return [message.value().decode().strip('"') for message in there]

    workers = [worker(0), worker(1)]
    try:
        until("the workers", lambda: [Rest(port).ask("/connectors") for port in ports] == [[], []])
        new = {"connector.class": "FileStreamSource", "tasks.max": "1", "file": str(source), "topic": "once"}
        new |= {"exactly.once.support": "required", "topic.creation.default.partitions": "1"}
        new |= {"topic.creation.default.replication.factor": "1"}
        Rest(ports[0]).ask("/connectors", {"name": "source", "config": new})
        until("the task to run", lambda: runs_on() >= 0)
        with Flow(partial(write, source), LINES) as flow:
            for number in range(4):
                before = len(written())
                until("more lines", lambda least=before + 1000: len(written()) > least)
                time.sleep(random.random())
                same(flow.written < LINES, True, "lines are still to come")
                if number == 2:
                    broker.kill()
                    broker.start()
                    continue
                until("the task to run", lambda: runs_on() >= 0)
                killed = runs_on()
                workers[killed].kill()
                workers[killed] = worker(killed)
            until("all lines", lambda: len(set(written())) == LINES)
            same(written(), [f"line {number}" for number in range(LINES)], "lines, each once and in order")
    finally:
        for each in workers:
            each.__exit__()


def write(file: Path, begin: int, end: int) -> None:
    with file.open("a") as stream:
        stream.writelines(f"line {i}\n" for i in range(begin, end))


def lines(file: Path) -> set[str]:
    return set(file.read_text().splitlines()) if file.exists() else set()
