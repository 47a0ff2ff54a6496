"""How soon a broker serves again that was killed in the middle of writing, with much on its disk."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from benchmarks import tools
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

_SIZE = 1000


def measure(server: Server, samples: Samples, gigabytes: float) -> None:
    """Fill, kill -9 under load, forget the page cache of the data, restart; repeat the last three."""
    server.start()
    with ThinClient.to(server.address) as client:
        client.create_topics(["much"], 4)
    tuned = ("batch.size=65536", "linger.ms=5")
    records = int(gigabytes * 1e9 / _SIZE)
    tools.producer_perf(server.address, "much", records=records, size=_SIZE, properties=tuned)
    for _ in range(3):
        _kill_under_load(server)
        _drop_page_cache(server.data)
        server.launch()
        with ThinClient(server.connect(300)) as client:
            client.wait_for_leaders("much")
            end = client.end_offset("much", 0)
            assert client.fetch("much", 0, max(end - 10, 0))
            client.produce("much", [0, 1, 2, 3], b"again")
        taken = time.perf_counter() - server.launched
        samples.add("kill -9 with much on disk: restart to serving, s", server.name, taken)


def _kill_under_load(server: Server) -> None:
    """Kill the broker while one connection after another appends to it."""
    stop = threading.Event()

    def load() -> None:
        with ThinClient.to(server.address) as client:
            while not stop.is_set():
                try:
                    client.produce("much", [0, 1, 2, 3], os.urandom(50_000))
                except OSError:
                    return

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    server.kill()
    stop.set()
    for thread in threads:
        thread.join()


def _drop_page_cache(folder: Path) -> None:
    """Have the kernel read the files from disk again, as after a reboot."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
