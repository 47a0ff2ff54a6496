"""Real processes that are killed: workers of one directory, each a broker, behind a proxy that is killed as well.

``MAGNETAR_KILLS`` says how often.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import cast

import pulsar
import pytest

from tests.ownership.load import KafkaReader, Work
from tests.proxy.processes import ClusterProcess, ProxyProcess
from tests.workers.house import PARTITIONS, House
from tests.workers.load import KafkaLoad, PulsarLoad, check, stored, until

KILLS = int(os.environ.get("MAGNETAR_KILLS", "3"))
EACH = 7_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 60 * KILLS)]


class _Behind:
    """What a proxy is put in front of, as `ProxyProcess` wants it."""

    def __init__(self, house: House) -> None:
        self.served = {"kafka": [house.address], "pulsar": house.served["pulsar"]}


def test_nothing_acknowledged_is_lost_or_doubled_while_workers_are_killed(tmp_path: Path) -> None:
    with House(tmp_path / "data", 3) as house:
        house.until_all_serve()
        behind = cast(ClusterProcess, _Behind(house))
        settings = (
            "pulsar.listeners=pulsar://127.0.0.1:0",
            f"broker.service.url={house.pulsar_url}",
        )
        with ProxyProcess(tmp_path, behind, *settings) as proxy:
            house.make_topic("k")
            house.until_shared("k")
            load = KafkaLoad(proxy.kafka, "k", PARTITIONS)
            reader = KafkaReader(proxy.kafka, "k", "readers")
            reading = Work(reader.step)
            for number in range(KILLS):
                load.wait_for_more(EACH)
                worker = number % 3 + 1
                before = house.send(worker, signal.SIGKILL)
                if number == 1:
                    proxy.again()
                load.wait_for_more(EACH)
                house.until_again(worker, before)
            load.end()
            wanted = {(p, n) for p in range(PARTITIONS) for n in load.acknowledged[p]}
            got = reader.got.by_partition
            until(lambda: not wanted - {(p, n) for p, ns in list(got.items()) for n in list(ns)}, 0.5)
            reading.end()
            reader.close()
            check(load, proxy.kafka, "k")
            print(f"{load.count()} records, {KILLS} kills, longest silence {load.longest_silence_s:.1f} s")
            assert "Traceback" not in proxy.log.read_text()


def test_pulsars_producers_and_killed_workers(tmp_path: Path) -> None:
    with House(tmp_path / "data", 3) as house:
        house.until_all_serve()
        behind = cast(ClusterProcess, _Behind(house))
        settings = (
            "pulsar.listeners=pulsar://127.0.0.1:0",
            f"broker.service.url={house.pulsar_url}",
        )
        with ProxyProcess(tmp_path, behind, *settings) as proxy:
            house.make_topic("p")
            house.until_shared("p")
            client = pulsar.Client(proxy.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            load = PulsarLoad(client, "persistent://public/default/p", PARTITIONS)
            for number in range(2):
                load.wait_for_more(EACH)
                before = house.send(number + 1, signal.SIGKILL)
                load.wait_for_more(EACH)
                house.until_again(number + 1, before)
            load.end()
            client.close()
            found = stored(house.address, "p", PARTITIONS)
            for partition in range(PARTITIONS):
                missing = set(load.acknowledged[partition]) - set(found[partition])
                assert not missing, f"{partition} lost {sorted(missing)[:10]}"
            assert "Traceback" not in proxy.log.read_text()
