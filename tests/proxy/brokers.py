"""Several brokers in one process, over one tree of metadata and one disk in memory: a cluster that starts in a second.

    python -m tests.proxy.brokers COUNT HOME [NAME=VALUE ...]

They agree on who owns what as they do on ZooKeeper (`ClusterOwnership`). It says ``ready kafka=A,B,C pulsar=...
http=...``, and for each line that it reads does as told, then says ``done``:

    end N      broker N gives its bundles away and ends
    start N    it comes back, at the same addresses
    move N     N times, a bundle is given away by who has it; where the same broker gets it back its epoch has grown

It ends with its input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from random import Random

import uvloop

from magnetar.cluster import cluster_ownership
from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.ledger.port import LedgerEngine
from magnetar.logs.storage.factories import MetadataStoreFactory, StorageEngineFactory
from magnetar.metadata import MemoryStore, MetadataStore
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.memory import MemoryTree
from magnetar.node.service import BrokerService
from magnetar.settings import built_in
from magnetar.settings.settings import Settings

TREE, DISK = MemoryTree(makes_parents=True), MemoryDisk()


class SharedStores(MetadataStoreFactory):
    """``zk:`` is the tree of this process; each broker is a session of it."""

    scheme = "zk"

    async def open(self, url: str, settings: Settings, held: DirectoryLock) -> MetadataStore:
        return MemoryStore(TREE)


class SharedEngines(StorageEngineFactory):
    """``shared:`` is the disk of this process: what one broker wrote another opens."""

    scheme = "shared"

    async def open(
        self, url: str, settings: Settings, held: DirectoryLock, store: MetadataStore
    ) -> LedgerEngine:
        return MemoryEngine(store, DISK, root=Path("/shared"))


# Brokers that have only just come are given their part at once.
cluster_ownership._SETTLED_S, cluster_ownership._LOOK_S = 0.2, 0.1
built_in.METADATA_STORES["zk"] = "tests.proxy.brokers:SharedStores"
built_in.STORAGE_ENGINES["shared"] = "tests.proxy.brokers:SharedEngines"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Cluster:
    """The brokers 1 to ``count``."""

    def __init__(self, count: int, home: Path, more: dict[str, str]) -> None:
        self.home = home
        self._more = more
        self._ports = {n: [free_port() for _ in range(3)] for n in range(1, count + 1)}
        self.services: dict[int, BrokerService] = {}

    async def start(self, number: int) -> None:
        kafka, pulsar, http = self._ports[number]
        texts = {
            "data.dir": str(self.home / f"broker-{number}"),
            "node.id": str(number),
            "metadata.url": "zk:tree",
            "storage.url": "shared:",
            "listeners": f"PLAINTEXT://127.0.0.1:{kafka}",
            "pulsar.listeners": f"pulsar://127.0.0.1:{pulsar}",
            "http.listeners": f"http://127.0.0.1:{http}",
            "messaging.protocols": "kafka,pulsar",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "8",
            "namespace.bundles": "16",
            **self._more,
        }
        service = BrokerService(Settings().with_values(texts))
        await service.start()
        self.services[number] = service

    async def end(self, number: int) -> None:
        await self.services.pop(number).close()

    async def move(self, times: int, dice: Random) -> None:
        for _ in range(times):
            service = dice.choice(list(self.services.values()))
            ownership = service.broker.cluster.ownership
            mine = [
                bundle
                for name in service.broker.namespaces.names()
                for bundle in ownership.bundles(name)
                if (owner := ownership.owner_of(bundle)) and owner.node_id == ownership.node_id
            ]
            if mine:
                await ownership.release(dice.choice(mine))
            await asyncio.sleep(0.05)

    async def until_shared(self) -> None:
        """Wait until each broker has something of every namespace, and nothing that it would hand over later."""
        while True:
            ownership = next(iter(self.services.values())).broker.cluster.ownership
            assert isinstance(ownership, cluster_ownership.ClusterOwnership)
            meant = [
                {each: ownership._meant_for(each) for each in ownership.bundles(name)}
                for name in ("public/default", "public/__kafka")
            ]
            have = [
                {each: owner.node_id for each in bundles if (owner := ownership.owner_of(each))}
                for bundles in meant
            ]
            if have == meant and all(set(each.values()) == self.services.keys() for each in have):
                return
            await asyncio.sleep(0.05)

    def told(self, at: int) -> str:
        return ",".join(f"127.0.0.1:{ports[at]}" for ports in self._ports.values())


async def serve(count: str, home: str, *more: str) -> None:
    cluster = Cluster(int(count), Path(home), dict(each.split("=", 1) for each in more))
    for number in range(1, int(count) + 1):
        await cluster.start(number)
    await cluster.until_shared()
    print(f"ready kafka={cluster.told(0)} pulsar={cluster.told(1)} http={cluster.told(2)}", flush=True)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    dice = Random(7)
    while line := await reader.readline():
        verb, _, number = line.decode().strip().partition(" ")
        if verb == "move":
            await cluster.move(int(number), dice)
        else:
            await {"end": cluster.end, "start": cluster.start}[verb](int(number))
        print("done", flush=True)
    for service in list(cluster.services.values()):
        await service.close()


if __name__ == "__main__":
    # The classes above are looked up by their module's name, of which there is to be one only.
    from tests.proxy.brokers import serve as serve_once

    uvloop.run(serve_once(*sys.argv[1:]))
