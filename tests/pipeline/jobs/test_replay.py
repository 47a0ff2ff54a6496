"""Dead letters are sent again: each once, as they were, and marked; a replay that dies loses and doubles nothing."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.pipeline.jobs.project import create
from magnetar.pipeline.jobs.replay import replay
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, load_spec
from tests.process import BrokerProcess

SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")), ("key", pa.binary()), ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("error", pa.string()), ("schema_id", pa.int32()),
    ]
)  # fmt: skip
STAMP = datetime.datetime(2020, 2, 3, 4, 5, 6, 789000, datetime.UTC)


def project(broker: BrokerProcess, place: Path, topic: str, letters: int) -> ProjectSpec:
    """Make a project that has dead letters, as a run would leave them."""
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(20)
    create(place, topic, broker.data, schema="id int")
    spec = load_spec(place)
    rows = [
        {
            "topic": topic, "partition": n % 2, "offset": n, "timestamp": STAMP, "key": b"k\xff%d" % n,
            "value": None if n == 3 else b"v%d" % n,
            "headers": [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}],
            "error": "it is not JSON" if n % 2 else "it has no key",
        }
        for n in range(letters)
    ]  # fmt: skip
    table = place / "tables" / spec.topic(topic).dead_letters
    table.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), table / "part-0.parquet")
    return spec


def consumed(address: str, topic: str) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "any", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    found: list[Any] = []
    ended = 0
    while ended < 3:
        message = consumer.poll(20)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    return found


def test_each_letter_goes_out_once_as_it_was(broker: BrokerProcess, tmp_path: Path) -> None:
    spec = project(broker, tmp_path, "replay.once", 6)
    dry = replay(spec, dry_run=True).topics[0]
    assert (dry.found, dry.sent) == (6, 0)
    assert consumed(broker.address, "replay.once") == []
    some = replay(spec, error="no key").topics[0]
    assert (some.found, some.sent_before, some.sent) == (3, 0, 3)
    rest = replay(spec).topics[0]
    assert (rest.found, rest.sent_before, rest.sent) == (6, 3, 3)
    assert replay(spec).topics[0].sent == 0
    messages = consumed(broker.address, "replay.once")
    assert sorted(m.key() for m in messages) == [b"k\xff%d" % n for n in range(6)]
    for m in messages:
        n = int(m.key()[2:])
        assert m.value() == (None if n == 3 else b"v%d" % n)
        assert m.partition() == n % 2
        assert m.timestamp()[1] == 1580702706789
        headers = m.headers()
        assert headers[:2] == [("h", b"\x00"), ("h", None)]
        assert ("magnetar.replay.of", f"{n % 2}:{n}".encode()) in headers


def test_a_letter_that_failed_again_names_its_first_place(broker: BrokerProcess, tmp_path: Path) -> None:
    spec = project(broker, tmp_path, "replay.again", 1)
    table = tmp_path / "tables/replay_again_dead_letters/part-0.parquet"
    rows = pq.read_table(table).to_pylist()
    rows[0]["headers"] = [
        {"key": "magnetar.replay.of", "value": b"1:77"},
        {"key": "magnetar.replay.of.letter", "value": b"1:77"},
    ]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), table)
    replay(spec, to="replay.again")
    assert consumed(broker.address, "replay.again")[0].headers() == [
        ("magnetar.replay.of", b"1:77"), ("magnetar.replay.of.letter", b"0:0"),
    ]  # fmt: skip


DIES = """
import os, sys
from pathlib import Path
from magnetar.pipeline.jobs import replay as module
from magnetar.pipeline.jobs.spec import load_spec

write, left = module.Notes.write, int(sys.argv[2])

def dying(self, *notes):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    write(self, *notes)

module.Notes.write = dying
module.replay(load_spec(Path(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("notes", [0, 1, 2, 30, 51])
def test_a_replay_that_dies_loses_and_doubles_nothing(
    broker: BrokerProcess, tmp_path: Path, notes: int
) -> None:
    topic = f"replay.dies.{notes}"
    spec = project(broker, tmp_path, topic, 50)
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path), str(notes)], check=False)
    assert died.returncode == 9
    left = replay(spec).topics[0]
    assert left.found == left.sent_before + left.sent == 50
    keys = sorted(m.key() for m in consumed(broker.address, topic))
    assert keys == sorted(b"k\xff%d" % n for n in range(50))
    if notes == 30:  # 29 were marked, and more had been sent by then
        assert left.sent_before >= 29


def test_bad_orders(broker: BrokerProcess, tmp_path: Path) -> None:
    spec = project(broker, tmp_path / "a", "replay.bad", 1)
    with pytest.raises(SpecError, match="there is no topic 'nowhere'"):
        replay(spec, to="nowhere")
    with pytest.raises(SpecError, match=r"topics has no 'x'; it has replay.bad"):
        replay(spec, topic="x")
    create(tmp_path / "b", "replay.bad", broker.data, schema="id int")
    with pytest.raises(SpecError, match="there is no table replay_bad_dead_letters"):
        replay(load_spec(tmp_path / "b"))
