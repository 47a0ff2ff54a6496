"""A linked share group by volume: share consumers and Pulsar's Shared consumers work, and are killed, at random.

    .venv/bin/python -m compat.linked_workers [RECORDS [SEED]]

A million records unless told otherwise; run from the repository. Each must be acknowledged, and none come again once it
was, but for what was in flight when a consumer of Pulsar's was killed: its client tells of acknowledgements later.
"""

from __future__ import annotations

import random
import sys
import threading
import time

from compat.broker import standalone
from tests.shares.test_linked_shares import came_again
from tests.shares.test_share_consumers import Worker, create, lag, produce

OF_EACH_KIND = 3
KILL_EACH_S = 4.0
SETTINGS = (
    "linked.subscriptions=crew",
    "share.auto.offset.reset=earliest",
    "group.share.heartbeat.interval.ms=500",
    "group.share.session.timeout.ms=6000",
    "group.share.record.lock.duration.ms=5000",
    "group.share.min.record.lock.duration.ms=5000",
)


def main(records: int = 1_000_000, seed: int = 1) -> int:
    chance = random.Random(seed)
    with standalone(*SETTINGS, protocols=("pulsar",)) as ready:
        served = dict(word.split("=", 1) for word in ready.split())
        kinds = [
            (served["kafka"], "crew", "work", "worker"),
            (f"pulsar://{served['pulsar']}", "crew", "work", "pulsar_worker"),
        ]
        create(served["kafka"], "work")
        crew = [Worker(*kind) for kind in kinds for _ in range(OF_EACH_KIND)]
        began = time.monotonic()
        filling = threading.Thread(target=produce, args=(served["kafka"], "work", range(records)))
        filling.start()
        kills = 0
        while filling.is_alive() or lag(served["kafka"], "crew", "work"):
            time.sleep(KILL_EACH_S)
            victim = chance.choice([worker for worker in crew if worker.killed is None])
            victim.kill()
            kills += 1
            crew.append(Worker(*next(kind for kind in kinds if kind[3] == victim.kind)))
            print(
                f"{time.monotonic() - began:6.0f} s  {kills} killed, {told(crew):,} acknowledged", flush=True
            )
        took_s = time.monotonic() - began
        for worker in crew:
            if worker.killed is None:
                worker.end()
    had = {number for worker in crew for _, numbers in worker.got for number in numbers}
    again = came_again(crew, [])
    of_kind = {kind[3]: sum(len(worker.done) for worker in crew if worker.kind == kind[3]) for kind in kinds}
    print(f"{records:,} records, {kills} workers killed, {took_s:.0f} s: {records / took_s:,.0f} records/s")
    print(f"delivered {len(had):,}; acknowledged by kind: {of_kind}; came again after that: {len(again)}")
    for each in again[:5]:
        print("   ", each)
    return 0 if had == set(range(records)) and not again else 1


def told(crew: list[Worker]) -> int:
    """Return how many acknowledgements workers were told of."""
    return sum(len(numbers) for worker in crew for _, numbers in worker.acked)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
