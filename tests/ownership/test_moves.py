"""Ownership taken away and given back under load: nothing acknowledged is lost, doubled or reordered.

``MAGNETAR_MOVES`` says how often; ``MAGNETAR_SEED`` which bundles, and for how long.
"""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise

import pulsar
import pytest

from tests.ownership.load import (
    PARTITIONS,
    PATIENCE_S,
    Committer,
    KafkaProducer,
    KafkaReader,
    PulsarProducer,
    PulsarReader,
    Told,
    make_topics,
    stored,
    under_way,
)
from tests.ownership.process import SEED, MovingBroker

MOVES = int(os.environ.get("MAGNETAR_MOVES", "30"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 2 * MOVES)]


def check_order(topic: str, told: Told, acknowledged: Told, *, once: bool, resends_in_order: bool) -> None:
    """What was acknowledged is there, in order; ``once``: and nothing is there twice, nor missing in between."""
    for partition in range(PARTITIONS):
        numbers, order = told.by_partition[partition], acknowledged.by_partition[partition]
        missing = set(order) - set(numbers)
        where = f"seed {SEED}: {topic}-{partition}"
        assert not missing, f"{where}: lost: {sorted(missing)[:10]}"
        firsts = told.firsts(partition)
        if resends_in_order:
            late = [pair for pair in pairwise(firsts) if pair[0] > pair[1]]
            assert not late, f"{where}: reordered: {late[:10]}, {len(firsts)} in all"
        else:
            # The client may send what was refused behind what it had not sent yet. With one request on its way at a
            # time it is acknowledged in the order in which it was stored, whatever that is.
            kept = told.lasts(partition)
            at = next((n for n, pair in enumerate(zip(kept, order, strict=True)) if pair[0] != pair[1]), None)
            assert at is None, f"{where}: stored as {kept[at:][:10]}, acknowledged as {order[at:][:10]}"
        if once:
            assert numbers == list(range(len(numbers))), f"{where} has some twice"


def until_all_is_told(producer: KafkaProducer | PulsarProducer) -> None:
    """Pulsar's client may end a flush before it has called for the last message."""
    deadline = time.monotonic() + PATIENCE_S
    while len(producer.acknowledged) < sum(producer.sent):
        assert time.monotonic() < deadline, f"seed {SEED}: {producer.topic}: some are not acknowledged"
        time.sleep(0.01)


def until_all_is_read(readers: list[KafkaReader] | list[PulsarReader], wanted: Told) -> None:
    deadline = time.monotonic() + PATIENCE_S
    for partition in range(PARTITIONS):
        acknowledged = set(wanted.by_partition[partition])
        while missing := acknowledged - {n for each in readers for n in each.got.by_partition[partition]}:
            assert time.monotonic() < deadline, (
                f"seed {SEED}: {len(missing)} of partition {partition} never came: {sorted(missing)[:10]}"
            )
            time.sleep(0.1)


def test_nothing_acknowledged_is_lost_doubled_or_reordered(broker: MovingBroker) -> None:
    started = time.monotonic()
    make_topics(broker.kafka, "idempotent", "plain", "public/deduplicated/d", "p")
    client = pulsar.Client(f"pulsar://{broker.pulsar}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    idempotent = KafkaProducer(broker.kafka, "idempotent", **{"enable.idempotence": True})
    plain = KafkaProducer(broker.kafka, "plain", **{"max.in.flight": 1, "acks": "all"})
    once = PulsarProducer(client, "persistent://public/deduplicated/d", "once")
    again = PulsarProducer(client, "persistent://public/default/p", "again")
    members = [KafkaReader(broker.kafka, "idempotent", "members") for _ in range(2)]
    crossing = [KafkaReader(broker.kafka, "public/deduplicated/d", "crossing")]
    committer = Committer(broker.kafka, "plain", "ledger")
    shared, failover = (
        [
            PulsarReader(client, topic, partition, name, kind)
            for partition in range(PARTITIONS)
            for _ in range(2)
        ]
        for topic, name, kind in (
            (again.topic, "shared", pulsar.ConsumerType.Shared),
            (once.topic, "failover", pulsar.ConsumerType.Failover),
        )
    )
    for each in (once, again):
        each.begin()
    with under_way(*members, *crossing, committer, *shared, *failover):
        with under_way(idempotent, plain, once, again):
            broker.move(MOVES)
        producers = idempotent, plain, once, again
        for each in producers:
            each.flush()
            assert not each.failed, f"seed {SEED}: {each.failed[:3]}"
            until_all_is_told(each)
        until_all_is_read(members, idempotent.acknowledged)
        until_all_is_read(crossing, once.acknowledged)
        until_all_is_read(shared, again.acknowledged)
        until_all_is_read(failover, once.acknowledged)
    assert committer.committed() == committer.kept > 0
    for topic, producer, is_once in (
        ("idempotent", idempotent, True),
        ("plain", plain, False),
        ("public/deduplicated/d", once, True),
        ("p", again, False),
    ):
        found, epochs = stored(broker.kafka, topic)
        # librdkafka promises order where it sends again only to idempotent producers, whatever max.in.flight is.
        check_order(topic, found, producer.acknowledged, once=is_once, resends_in_order=producer is not plain)
        for each in epochs.values():
            assert all(one <= other for one, other in pairwise(e for e in each if e is not None))
    for partition in range(PARTITIONS):  # who takes over begins where the other left, or before: never behind
        for each in failover:
            firsts = each.got.firsts(partition)
            assert firsts == sorted(firsts), f"seed {SEED}: failover, partition {partition}"
    messages = {producer.topic: sum(producer.sent) for producer in producers}
    client.close()
    for reader in (*members, *crossing, committer):
        reader.close()
    assert broker.end() == 0, broker.log.read_text()[-5000:]
    print(
        f"{MOVES} moves in {time.monotonic() - started:.0f} s, seed {SEED}: {messages}, commits {committer.kept}"
    )
    assert "Traceback" not in broker.log.read_text()
    assert threading.active_count() < 50
