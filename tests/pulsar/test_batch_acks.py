"""Parts of batches: what of them was acknowledged stays acknowledged when the broker dies."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from pulsar import ConsumerType

from magnetar.ledger.formats.cursor_info import CursorInfo, cursor_path, decode_cursor
from tests.process import BrokerProcess
from tests.pulsar.conftest import PULSAR, connect
from tests.pulsar.test_client import WAIT_MS, nothing_comes, numbers, receive, send

TOPIC = "persistent://public/default/parts"
LOG = "public/default/persistent/parts-partition-0"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    started: list[BrokerProcess] = []

    def begin(*arguments: str) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "data", *PULSAR, *arguments))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def subscribe(client: pulsar.Client, name: str, kind: ConsumerType) -> pulsar.Consumer:
    return client.subscribe(TOPIC, name, kind, batch_index_ack_enabled=True)


def kept(broker: BrokerProcess, name: str) -> CursorInfo:
    """Return what the metadata store has of a cursor, seen from outside."""
    with sqlite3.connect(f"file:{broker.data}/metadata.sqlite?mode=ro", uri=True) as store:
        (value,) = store.execute(
            "SELECT value FROM node WHERE path = ?", (cursor_path(LOG, name),)
        ).fetchone()
    return decode_cursor(bytes(value))


def until_kept(broker: BrokerProcess, name: str, remaining: int) -> None:
    while [each for _, each in kept(broker, name).partly] != [remaining]:
        time.sleep(0.05)


def one_batch(client: pulsar.Client) -> None:
    send(client, TOPIC, numbers(10), batching_enabled=True, batching_max_publish_delay_ms=300)


@pytest.mark.parametrize("kill", [True, False])
def test_a_part_of_a_batch_stays_acknowledged(start: Callable[..., BrokerProcess], kill: bool) -> None:
    broker = start()
    client = connect(broker)
    shared = subscribe(client, "shared", ConsumerType.Shared)
    alone = subscribe(client, "alone", ConsumerType.Exclusive)
    one_batch(client)
    messages = [shared.receive(WAIT_MS) for _ in range(10)]
    assert len({(each.message_id().ledger_id(), each.message_id().entry_id()) for each in messages}) == 1
    for message in messages[::2]:
        shared.acknowledge(message)
    mine = [alone.receive(WAIT_MS) for _ in range(10)]
    alone.acknowledge_cumulative(mine[6])
    until_kept(broker, "shared", 0b1010101010)
    until_kept(broker, "alone", 0b1110000000)
    if kill:
        broker.kill()
    else:
        assert broker.end() == 0
    client.shutdown()
    again = connect(start())
    shared = subscribe(again, "shared", ConsumerType.Shared)
    assert receive(shared, 5) == numbers(10)[1::2]
    assert nothing_comes(shared)
    alone = subscribe(again, "alone", ConsumerType.Exclusive)
    assert receive(alone, 3) == numbers(3, 7)
    assert nothing_comes(alone)
    send(again, TOPIC, [b"behind"])
    assert receive(shared, 1) == [b"behind"]
    again.close()


def test_where_it_is_switched_off_the_batch_comes_again_whole(start: Callable[..., BrokerProcess]) -> None:
    broker = start("--set", "acknowledgmentAtBatchIndexLevelEnabled=false")
    client = connect(broker)
    consumer = subscribe(client, "shared", ConsumerType.Shared)
    one_batch(client)
    for message in [consumer.receive(WAIT_MS) for _ in range(9)]:
        consumer.acknowledge(message)
    consumer.close()
    consumer = subscribe(client, "shared", ConsumerType.Shared)
    assert receive(consumer, 10) == numbers(10)
    consumer.close()
    assert nothing_comes(subscribe(client, "shared", ConsumerType.Shared))
    assert kept(broker, "shared").partly == ()
    client.close()
