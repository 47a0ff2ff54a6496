"""Kafka Connect: a file becomes a topic becomes a file, while a worker and the broker are killed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from waiting import same

from apps import topics
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


def write(file: Path, begin: int, end: int) -> None:
    with file.open("a") as stream:
        stream.writelines(f"line {i}\n" for i in range(begin, end))


def lines(file: Path) -> set[str]:
    return set(file.read_text().splitlines()) if file.exists() else set()
