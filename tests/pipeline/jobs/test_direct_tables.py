"""Pipelines whose tables Magnetar writes, in Delta and Iceberg: exactly once, whenever the run is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from magnetar.pipeline import tables
from tests.pipeline.jobs.test_json_pipeline import MAGNETAR, magnetar
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


class Shop:
    """A topic of orders, and what its tables must hold."""

    def __init__(self, broker: BrokerProcess, topic: str, seed: int) -> None:
        self.broker, self.topic = broker, topic
        self.sent: list[tuple[str, bytes | None]] = []
        self.current: dict[bytes, int] = {}
        self.bad = 0
        self._random = random.Random(seed)

    def sell(self, count: int) -> None:
        """Send orders, some of them bad, some of them deletions."""
        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 5})
        for number in range(len(self.sent), len(self.sent) + count):
            key, kind = f"k{self._random.randrange(40)}", self._random.randrange(10)
            value = None if kind == 0 else b"{bad" if kind == 1 else b'{"id": %d}' % number
            producer.produce(self.topic, key=key, value=value)
            self.sent.append((key, value))
            self.bad += kind == 1
            if kind == 0:
                self.current.pop(key.encode(), None)
            elif kind > 1:
                self.current[key.encode()] = number
        assert producer.flush(20) == 0

    def check(self, project: Path) -> None:
        """Compare every table with what was sent."""
        table = self.topic.replace(".", "_")
        found = {
            name: tables.open(project / "tables" / f"{table}_{name}", create=False).to_arrow().to_pylist()
            for name in ("bronze", "decoded", "dead_letters", "current")
        }
        assert sorted((row["key"].decode(), row["value"] or b"") for row in found["bronze"]) == sorted(
            (key, value or b"") for key, value in self.sent
        )
        places = sorted((row["partition"], row["offset"]) for row in found["bronze"])
        assert len(set(places)) == len(self.sent)
        assert sorted((row["_partition"], row["_offset"]) for row in found["decoded"]) == places
        assert len(found["dead_letters"]) == self.bad
        assert {row["_key"]: row["id"] for row in found["current"]} == self.current


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_and_repeated_every_record_is_there_once(
    broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    shop, project = Shop(broker, f"shop.{kind}", seed), tmp_path / "shop"
    shop.sell(300)
    options = ("--data", broker.data, "--schema", "id int", "--table-format", kind)
    magnetar("init", project, "--topic", shop.topic, *options)
    killed_once_it_writes(project, random.Random(seed).random() * 6)
    first = magnetar("run", project)
    assert (first["lag"], sum(each["rows"] for each in first["tables"][:2])) == (0, 600)
    shop.check(project)

    # As if the driver had died between the table's commit and the checkpoint's, in every flow at once.
    commits = list(project.glob("storage/_checkpoints/*/*/*/commits/*"))
    assert len(commits) >= 4
    for path in commits:
        path.unlink()
    shop.sell(100)
    again = magnetar("run", project)
    assert (again["lag"], again["records"]) == (0, 100)
    assert [each["added"] for each in again["tables"][:2]] == [100, 100]
    shop.check(project)


def killed_once_it_writes(project: Path, later_s: float) -> None:
    """Begin a run, and kill it and all of its processes some time after the first table is there."""
    command: list[Any] = [MAGNETAR, "pipeline", "run", project, "--json"]
    run = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while run.poll() is None and not any(project.glob("tables/*_bronze")):
        time.sleep(0.05)
    time.sleep(later_s)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def test_a_table_made_anew_has_everything_again(broker: BrokerProcess, tmp_path: Path) -> None:
    """Parquet, where Spark writes what is made of bronze; and current state by upsert."""
    shop, project = Shop(broker, "shop.anew", 7), tmp_path / "shop"
    shop.sell(60)
    options = ("--data", broker.data, "--schema", "id int", "--current", "upsert")
    magnetar("init", project, "--topic", shop.topic, *options)
    magnetar("run", project)
    done = magnetar("run", project, "--full-refresh", "shop_anew_current", "--yes")
    assert done["tables"][-1]["rows"] == len(shop.current)
    found = tables.open(project / "tables" / "shop_anew_current", create=False).to_arrow().to_pylist()
    assert {row["_key"]: row["id"] for row in found} == shop.current
    code = (project / "transformations" / "shop_anew.py").read_text()
    assert 'dp.create_sink("shop_anew_bronze"' in code
    assert '@dp.table(name="shop_anew_decoded"' in code
    report = json.loads((Path(done["directory"]) / "report.json").read_text())
    assert report["lag"] == 0


def test_a_project_without_current_state_has_nothing_for_the_last_pass(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    shop, project = Shop(broker, "shop.none", 7), tmp_path / "shop"
    shop.sell(10)
    options = ("--data", broker.data, "--schema", "id int", "--table-format", "delta", "--current", "none")
    magnetar("init", project, "--topic", shop.topic, *options)
    assert magnetar("run", project)["lag"] == 0
