"""Compaction of what transactions, chunks and batches wrote, on real bookies, with owners that take over and ledgers in
tiered storage: whoever reads ends with what a map holds.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pulsar
import pytest
from confluent_kafka import Producer

from magnetar.ledger.port import ManagedLedger
from magnetar.ledger.tiers.place import TierPlace
from tests.cluster.brokers import BrokerProcess
from tests.cluster.servers import Cluster
from tests.cluster.test_tiering import TieredBookieHouse, other_house
from tests.compaction.model import NAME, World
from tests.compaction.test_kafka import fetch, make, produce
from tests.compaction.test_transactions import ALL, COMMITTED, in_transaction, transactional
from tests.offload.promises import sealed
from tests.pipeline.test_slices import rows as rows_past_brokers
from tests.pulsar.test_compaction import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEEDS = max(int(os.environ.get("MAGNETAR_SEEDS", "300")) // 100, 2)
FIRST = int(os.environ.get("MAGNETAR_SEED", random.randrange(1 << 30)))


class OfTwoBrokers(World):
    """A log that two brokers of a cluster have in turns; the one takes it from the other, which may not know yet."""

    def __init__(
        self, seed: int, houses: tuple[TieredBookieHouse, TieredBookieHouse], place: TierPlace
    ) -> None:
        self.houses = houses
        self.owner = 0
        self.place = place
        self.moved = 0
        super().__init__(seed)

    @property
    def now_ms(self) -> int:
        return self.houses[0].now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        for house in self.houses:
            house.now_ms = now_ms

    async def opened(self) -> ManagedLedger:
        return await self.houses[self.owner].engine.open(NAME, self.policy)

    async def end_process(self) -> None:
        """End in order, or have the other one take over."""
        if self.chance.random() < 0.5:
            await self.houses[self.owner].reopen()
            return
        self.owner = 1 - self.owner
        await self.houses[self.owner].reopen()  # what it had of the log was of before

    async def step(self) -> None:
        if self.chance.random() < 0.1:
            for ledger_id in sealed(self.log):
                await self.log.offload(ledger_id, self.place)
                self.moved += 1
            await self.log.delete_local(sealed(self.log))
            return
        await super().step()


async def test_readers_end_with_what_a_map_holds_whoever_owns_the_log(
    cluster: Cluster, tmp_path: Path
) -> None:
    moved = 0
    for seed in range(FIRST, FIRST + SEEDS):
        house = TieredBookieHouse(cluster)
        await house.begin()
        other = await other_house(house)
        place = TierPlace("filesystem", path=str(tmp_path / f"tiers-{seed}"))
        world = OfTwoBrokers(seed, (house, other), place)
        try:
            await world.run(30)
        except BaseException as error:
            raise AssertionError(f"MAGNETAR_SEED={seed}") from error
        finally:
            await other.end()
            await house.end()
        moved += world.moved
    assert moved, "nothing lay in tiered storage"


KEYS = [f"k{number}" for number in range(12)]
DELETED = KEYS[:4]


def meaning(pairs: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Return what a map holds that is written in this order; nothing of what only made ledgers full."""
    found = dict(pairs)
    return {key: value for key, value in found.items() if value and key != "roll"}


def written(broker: Any, topic: str, producer: Producer) -> dict[str, bytes]:
    """Write large and small values of each key, by transactions of which a third is aborted; delete some plainly."""
    want: dict[str, bytes] = {}
    for number in range(45):
        some = [
            (key, b"%d" % number * (700 if (number + at) % 3 == 0 else 1))
            for at, key in enumerate(KEYS)
            if (number + at) % 4
        ]
        in_transaction(producer, topic, *some, committed=number % 3 != 1)
        want |= dict(some) if number % 3 != 1 else {}
    produce(broker, topic, *[(key, None) for key in DELETED])
    return {key: value for key, value in want.items() if key not in DELETED}


def test_readers_of_every_kind_see_what_a_map_holds(cluster: Cluster, tmp_path: Path) -> None:
    """Kafka's consumers, whatever fits into an answer, Pulsar's, and those who read ledgers past the brokers."""
    settings = (
        "log.cleaner.backoff.ms=100",
        "ledger.max.entries=10",
        "bookkeeper.cache.bytes=1",
    )
    process = BrokerProcess(cluster, tmp_path, 1, *settings)
    process.start()
    try:
        broker = cast(Any, SimpleNamespace(address=f"127.0.0.1:{process.kafka}"))
        topic = make(broker, delete_retention_ms="0")
        want = written(broker, topic, transactional(broker))
        while True:  # until deletions and what they deleted are gone
            produce(broker, topic, *[("roll", b"")] * 5)
            keys = [each.key().decode() for each in fetch(broker, topic, **ALL)]
            if not set(keys) & set(DELETED) and len(keys) < 40:
                break
            time.sleep(0.1)
        for _ in range(2):
            for most in (1, 900, 3000, 1 << 20):
                found = fetch(broker, topic, **COMMITTED, **{"max.partition.fetch.bytes": most})
                assert meaning((each.key().decode(), each.value()) for each in found) == want, most
            client = pulsar.Client(
                f"pulsar://127.0.0.1:{process.pulsar}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            )
            for compacted in (False, True):
                read_there = read(client, f"persistent://public/default/{topic}", compacted=compacted)
                assert meaning((each.partition_key(), each.data()) for each in read_there) == want
            client.close()
            past = f"zk://{cluster.hosts}/house"
            for given in ({}, {"kafka.bootstrap.servers": broker.address}):
                rows = rows_past_brokers(
                    cast(Any, past), subscribe=topic, isolation="read_committed", **given
                )
                assert rows
                if given:
                    assert meaning((cast(bytes, row[1]).decode(), cast(Any, row[2])) for row in rows) == want
            process.end()
            process.start()
    finally:
        process.end()
