"""kill -9 at every step of an offload, and of a whole broker that offloads: nothing is lost, nothing is left double."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from tests.offload.house import TieredHouse, filled, sealed
from tests.offload.test_broker import (
    PARTITIONS,
    RECORDS,
    consume,
    driver,
    ledgers,
    local_files,
    make,
    produce,
    until,
)
from tests.process import BrokerProcess

LEDGERS = 2
KILLS = int(os.environ.get("MAGNETAR_KILLS", "4"))


@pytest.mark.slow
async def test_a_kill_at_every_step_loses_nothing(tmp_path: Path) -> None:
    data, tiers = tmp_path / "data", tmp_path / "tiers"
    data.mkdir()
    house = TieredHouse(data)
    await house.begin()
    log = await house.log()
    await filled(log, 200 * LEDGERS)
    assert len(sealed(log)) == LEDGERS
    await house.end()
    due, steps = "-", 0
    while True:
        steps += 1
        command = [sys.executable, "-m", "tests.offload.stumbling", str(data), str(tiers), str(steps), due]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        due = done.stdout.strip() or due
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert steps > 10
    store = open_store(TierPlace("filesystem", path=str(tiers)), TierSettings())
    assert len(list(store.listed())) == 2 * LEDGERS, "nothing is left of the attempts that were killed"
    assert len(list(data.glob("ledgers/*/*.ledger"))) <= 1, "the open one"
    assert len(list(tiers.iterdir())) == 4 * LEDGERS, "with their attributes"


@pytest.mark.slow
def test_a_broker_that_is_killed_while_it_offloads(tmp_path: Path) -> None:
    data, tiers = tmp_path / "data", tmp_path / "tiers"
    settings = driver("filesystem", f"file.system.uri=file://{tiers}", "flush=always")
    rng = random.Random(int(os.environ.get("MAGNETAR_SEED", "7")))
    broker = BrokerProcess(data, *settings)
    make(broker, "t", remote_storage_enable="true", local_retention_ms="1")
    part = RECORDS // KILLS
    for number in range(KILLS):
        produce(broker, "t", part, number * part)
        time.sleep(rng.uniform(0, 0.3))
        broker.kill()
        broker = BrokerProcess(data, *settings)
    with broker, httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=60) as http:
        found = consume(broker, "t", part * KILLS)
        assert [value[:8] for _, _, _, value in found] == [
            b"%08d" % number
            for index in range(PARTITIONS)
            for number in range(part * KILLS)
            if number % PARTITIONS == index
        ]
        full = [each for each in ledgers(http, "t") if each["entries"]]
        until(lambda: sum(each["offloaded"] for each in ledgers(http, "t")) >= len(full) - PARTITIONS, broker)
        until(lambda: local_files(broker) <= 2 * PARTITIONS, broker)
        assert consume(broker, "t", part * KILLS) == found
        there = {each["properties"]["offloadUuid"] for each in ledgers(http, "t") if each["offloaded"]}
        store = open_store(TierPlace("filesystem", path=str(tiers)), TierSettings())
        until(lambda: {each.key[:36] for each in store.listed()} == there, broker)
