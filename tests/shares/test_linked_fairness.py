"""Workers of both kinds get of a linked queue what they have room for: by volume, with stock clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.process import BrokerProcess
from tests.shares.test_linked_shares import linked_broker
from tests.shares.test_share_consumers import Worker, create, lag, produce, until

RECORDS = 20_000
FIRST = 2_000


def test_members_that_come_second_work_beside_consumers_that_were_first(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = linked_broker(start_broker, tmp_path / "data")
    address, url = broker.address, broker.pulsar_url
    create(address, "work")
    produce(address, "work", range(FIRST))
    crew = [Worker(url, "crew", "work", "pulsar_worker") for _ in range(2)]
    until(lambda: sum(len(each.done) for each in crew) == FIRST, lambda: [len(each.done) for each in crew])
    time.sleep(2.5)  # by then the linked name has a group's offsets: how far the consumers are
    crew += [Worker(address, "crew", "work") for _ in range(2)]
    sent = FIRST
    while not all(each.done for each in crew[2:]):
        produce(address, "work", range(sent, sent + 400))
        sent += 400
        until(lambda: lag(address, "crew", "work") == 0, lambda: [each.failures for each in crew])
    before = [len(each.done) for each in crew]
    produce(address, "work", range(sent, sent + RECORDS))
    sent += RECORDS
    until(lambda: lag(address, "crew", "work") == 0, lambda: [len(each.done) for each in crew])
    for each in crew:
        each.end()
    assert set().union(*(each.done for each in crew)) == set(range(sent))
    shares = [len(each.done) - had for each, had in zip(crew, before, strict=True)]
    assert sum(shares[2:]) > RECORDS * 0.15, shares
    assert sum(shares[:2]) > RECORDS * 0.05, shares
