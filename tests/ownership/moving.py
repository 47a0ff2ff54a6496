"""A broker whose bundles are taken away and given back, each time under a grown epoch; a process of its own, for load.

    python -m tests.ownership.moving DATA SEED

It says ``ready kafka=HOST:PORT pulsar=HOST:PORT``, and for each line ``move N`` that it reads it takes a bundle away
and gives it back N times, two at a time, then says ``moved N``. By ``away GROUP`` it takes the bundle away that has a
group's coordinator, and by ``back GROUP`` it gives it back; it repeats what it did. It ends with its input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import uvloop

from magnetar.cluster.ownership import HASHES, BrokerInfo, Bundle, NotOwned, Owned, Ownership
from magnetar.kafka.coordinators.groups import partition_of
from magnetar.node.service import BrokerService
from magnetar.serving.listeners import Endpoint
from magnetar.settings.settings import Settings
from magnetar.topics.names import TopicName

BUNDLES = 4
OTHER = 2
"""A broker that clients cannot reach: what it has is out of their sight until it comes back."""
NAMESPACES = "public/default", "public/deduplicated", "public/__kafka"
AWAY_S, BETWEEN_S = 0.05, 0.1
AT_ONCE = 2
OFFSETS_PARTITIONS = 8


class MovingOwnership(Ownership):
    """What a test moves; bundles begin here, in epoch 0."""

    cluster = "moving"

    def __init__(self, node_id: int = 1, bundles: int = BUNDLES) -> None:
        super().__init__()
        self.node_id = node_id
        self._bundles = bundles
        self._endpoints: dict[str, Endpoint] = {}
        self._others: dict[str, Endpoint] = {}
        self._owners: dict[Bundle, Owned | None] = {}
        self._epochs: dict[Bundle, int] = {}

    def brokers(self) -> Sequence[BrokerInfo]:
        return [BrokerInfo(self.node_id, None, self._endpoints), BrokerInfo(OTHER, "elsewhere", self._others)]

    def listens(self, listener: str, endpoint: Endpoint) -> None:
        self._endpoints[listener] = endpoint

    def reaches(self, node_id: int, listener: str, host: str, port: int) -> None:
        """Have clients be told where the other broker is."""
        assert node_id == OTHER
        self._others[listener] = Endpoint(host, port)

    def leader(self) -> int:
        return self.node_id

    def bundles(self, namespace: str) -> Sequence[Bundle]:
        bounds = [HASHES * each // self._bundles for each in range(self._bundles + 1)]
        return [Bundle(namespace, *pair) for pair in pairwise(bounds)]

    def owner_of(self, bundle: Bundle) -> Owned | None:
        return self._owners.get(bundle, Owned(self.node_id, 0))

    async def acquire(self, bundle: Bundle) -> Owned:
        owner = self.owner_of(bundle)
        if owner is None or owner.node_id != self.node_id:
            raise NotOwned(f"Namespace bundle {bundle}", owner)
        return owner

    async def release(self, bundle: Bundle) -> None:
        await self.take(bundle)
        await self.give(bundle)

    async def take(self, bundle: Bundle, new_owner: int | None = None) -> None:
        """Have another broker own a bundle, or nobody, and return when this one has let go of it."""
        self._epochs[bundle] = self._epochs.get(bundle, 0) + 1
        self._owners[bundle] = None if new_owner is None else Owned(new_owner, self._epochs[bundle])
        for told in self.on_lost:
            await told(bundle)

    async def give(self, bundle: Bundle) -> None:
        """Have this broker own a bundle again."""
        self._epochs[bundle] += 1
        self._owners[bundle] = Owned(self.node_id, self._epochs[bundle])
        for told in self.on_acquired:
            await told(bundle)


@dataclass
class Mover:
    """Moves bundles, each of which may be away once at a time."""

    ownership: MovingOwnership
    dice: Random
    here: list[Bundle] = field(default_factory=list)
    left: int = 0

    def __post_init__(self) -> None:
        self.here = [bundle for name in NAMESPACES for bundle in self.ownership.bundles(name)]

    async def move(self, times: int) -> None:
        self.left = times
        await asyncio.gather(*(self._move_some() for _ in range(AT_ONCE)))

    async def _move_some(self) -> None:
        dice = self.dice
        while self.left > 0:
            self.left -= 1
            bundle = self.here.pop(dice.randrange(len(self.here)))
            await self.ownership.take(bundle, OTHER if dice.random() < 0.3 else None)
            await asyncio.sleep(dice.random() * AWAY_S)
            await self.ownership.give(bundle)
            self.here.append(bundle)
            await asyncio.sleep(dice.random() * BETWEEN_S)


async def serve(data: str, seed: str) -> None:
    texts = {
        "data.dir": data,
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "pulsar.listeners": "pulsar://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    }
    ownership = MovingOwnership()
    service = BrokerService(Settings().with_values(texts), ownership)
    await service.start()
    await service.broker.namespaces.create("public/deduplicated")
    await service.broker.set_policies("public/deduplicated", b'{"deduplicationEnabled": true}')
    kafka, pulsar = service.listeners["kafka"][0].advertised, service.listeners["pulsar"][0].advertised
    print(f"ready kafka={kafka} pulsar={pulsar}", flush=True)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    mover = Mover(ownership, Random(seed))
    while line := await reader.readline():
        match line.decode().split():
            case ["move", times]:
                await mover.move(int(times))
                print(f"moved {times}", flush=True)
            case [("away" | "back") as where, group]:
                partition = partition_of(group, OFFSETS_PARTITIONS)
                bundle = ownership.bundle_of(TopicName.parse("public/__kafka/__consumer_offsets"), partition)
                await (ownership.take(bundle) if where == "away" else ownership.give(bundle))
                print(where, group, flush=True)
    await service.close()


if __name__ == "__main__":
    uvloop.run(serve(*sys.argv[1:]))
