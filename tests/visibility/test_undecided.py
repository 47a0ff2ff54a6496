"""What lies above the last stable offset is for those alone who read what is not decided."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.ledger.files.managed import FilesManagedLedger
from magnetar.ledger.port import ManagedLedger
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSubscribe
from tests.pulsar import raw
from tests.visibility.conftest import TOPIC, House, soon
from tests.visibility.test_kafka import (
    FETCH_VERSION,
    LATEST,
    MAX_TIMESTAMP,
    PRODUCE_VERSION,
    fetch,
    first_row,
    produce,
    values,
)
from tests.visibility.test_pulsar import NAME, Beside, answer_of, messages

STABLE = 2
UNCOMMITTED, COMMITTED = 0, 1


class Undecided:
    """Has everything above an offset undecided, until it is told otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = STABLE
        monkeypatch.setattr(
            FilesManagedLedger,
            "last_stable_offset",
            property(lambda log: min(self.offset, log.high_watermark)),
        )

    def decide(self, log: ManagedLedger) -> None:
        self.offset = 1 << 60
        if log.on_moved is not None:
            log.on_moved()
        for watcher in log.watchers:
            watcher()


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> Undecided:
    return Undecided(monkeypatch)


async def test_fetch_gives_what_is_decided_to_whoever_wants_only_that(
    house: House, undecided: Undecided
) -> None:
    client, waiting = await house.kafka(), await house.kafka()
    for time in (1000, 1001, 3000, 4000):
        await soon(client.ask(produce(time), PRODUCE_VERSION))
    asked = [fetch(0), fetch(0), fetch(STABLE)]
    for request, level in zip(asked, (UNCOMMITTED, COMMITTED, COMMITTED), strict=True):
        request.isolation_level = level
    rows = [first_row(await soon(client.ask(each, FETCH_VERSION))) for each in asked]
    assert [values(row) for row in rows] == [[b"1000", b"1001", b"3000", b"4000"], [b"1000", b"1001"], []]
    assert [(row.high_watermark, row.last_stable_offset) for row in rows] == [(4, STABLE)] * 3
    parked = fetch(STABLE, wait_ms=50_000)
    parked.isolation_level = COMMITTED
    answer = asyncio.ensure_future(waiting.ask(parked, FETCH_VERSION))
    await soon(client.ask(produce(5000), PRODUCE_VERSION))
    assert not answer.done()
    undecided.decide(await house.log())
    assert values(first_row(await soon(answer))) == [b"3000", b"4000", b"5000"]


async def test_list_offsets_ends_at_what_is_decided(house: House, undecided: Undecided) -> None:
    client = await house.kafka()
    for time in (1000, 1001, 3000, 4000):
        await soon(client.ask(produce(time), PRODUCE_VERSION))

    async def offset_of(timestamp: int, level: int) -> int:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[asked])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic])
        row = (await soon(client.ask(request))).topics[0].partitions[0]
        assert row.error_code == 0
        return int(row.offset)

    for timestamp, low, high in ((LATEST, STABLE, 4), (1001, 1, 1), (2000, -1, 2), (MAX_TIMESTAMP, -1, 3)):
        assert await offset_of(timestamp, COMMITTED) == low
        assert await offset_of(timestamp, UNCOMMITTED) == high


async def test_subscriptions_are_given_what_is_decided(house: House, undecided: Undecided) -> None:
    client = await house.pulsar()
    await soon(client.ask(raw.producer(NAME)))
    for number in range(4):
        receipt = await soon(client.ask(raw.send(sequence_id=number), raw.entry(b"text%d" % number)))
    log = await house.log()
    beside = Beside(house, client, log, receipt.send_receipt.message_id)
    consumer = await beside.subscribed(initialPosition=CommandSubscribe.Earliest)
    assert await messages(consumer, STABLE) == [b"text0", b"text1"]
    assert (await answer_of(consumer, raw.ping())).type == BaseCommand.PONG  # and no third one before it
    undecided.decide(log)
    assert await messages(consumer, 2) == [b"text2", b"text3"]
