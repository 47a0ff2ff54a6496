"""``kill -9`` under load, again and again, while the cleaner runs: what was acknowledged is there, key by key."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from magnetar.doctor.ledgers import verify
from magnetar.pipeline.catalog import LedgerCatalog
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.port import SliceSize
from magnetar.pipeline.slices import LedgerSlice, read_slice
from tests.compaction.test_kafka import fetch, is_compacted, make, produce, rows, until
from tests.process import BrokerProcess

SETTINGS = ("--set", "log.cleaner.backoff.ms=10", "--set", "ledger.max.entries=20")
KEYS = 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_while_the_cleaner_runs_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data, sent, acknowledged = tmp_path / "data", 0, dict[str, int]()
    topic, where = "", "127.0.0.1:0"
    for life in range(6):
        with BrokerProcess(data, *SETTINGS, kafka=where) as process:
            where = process.address
            topic = topic or make(process, delete_retention_ms="1")
            found = rows(fetch(process, topic))
            latest = {key: int(value or b"-1") for _, key, value in found}
            for key, number in acknowledged.items():
                assert latest.get(key, -1) >= number, f"seed {seed}, life {life}"
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            killer = threading.Timer(chance.uniform(0.5, 2.0), process.kill)
            killer.start()
            producer = Producer({"bootstrap.servers": where, "linger.ms": 0, "message.timeout.ms": 3000})
            while killer.is_alive():
                key, number, sent = f"k{chance.randrange(KEYS)}", sent, sent + 1

                def note(error: object, _: object, key: str = key, number: int = number) -> None:
                    if error is None:
                        acknowledged[key] = max(number, acknowledged.get(key, 0))

                producer.produce(topic, b"%d" % number, key.encode(), on_delivery=note)
                producer.poll(0)
                time.sleep(0.0005)
            producer.purge()
            producer.flush(5)
    with BrokerProcess(data, *SETTINGS, kafka=where) as process:
        assert len(until(process, topic, KEYS + 60)) >= len(acknowledged)
    report = verify(data)
    assert report.is_whole, f"seed {seed}: {report.findings}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_between_transactions_bring_nothing_back(tmp_path: Path, seed: int) -> None:
    """Deletions, aborted transactions and open ones, with the process killed at any moment of it all."""
    chance = random.Random(seed)
    data, topic, where, told = tmp_path / "data", "", "127.0.0.1:0", dict[str, set[bytes | None]]()
    for life in range(6):
        with BrokerProcess(data, *SETTINGS, kafka=where) as process:
            where = process.address
            topic = topic or make(process, delete_retention_ms="1")
            producer = Producer(
                {
                    "bootstrap.servers": where,
                    "transactional.id": "t",
                    "linger.ms": 0,
                    "message.timeout.ms": 3000,
                }
            )
            producer.init_transactions(30)  # what was open is decided
            found: dict[str, bytes | None] = {}
            for _, key, value in rows(fetch(process, topic)):
                found[key] = value
            for key, wanted in told.items():
                assert found.get(key) in wanted, f"seed {seed}, life {life}, {key}"
                told[key] = {found.get(key)}
            killer = threading.Timer(chance.uniform(0.5, 2.0), process.kill)
            killer.start()
            with suppress(KafkaException):
                while killer.is_alive():
                    one_transaction(producer, topic, chance, told)
            killer.join()
            producer.purge()
    report = verify(data)
    assert report.is_whole, f"seed {seed}: {report.findings}"
    assert is_compacted(data, topic), "nothing was compacted"


def one_transaction(
    producer: Producer, topic: str, chance: random.Random, told: dict[str, set[bytes | None]]
) -> None:
    """Write some keys in a transaction; ``told`` are the values that each may have by then."""
    written: dict[str, bytes | None] = {}
    producer.begin_transaction()
    for _ in range(chance.randrange(1, 4)):
        key, value = f"k{chance.randrange(8)}", chance.choice([None, b"%d" % chance.randrange(1 << 30)])
        producer.produce(topic, value, key.encode())
        written[key] = value
    before = {key: told.get(key, {None}) for key in written}
    if chance.random() < 0.3:
        producer.abort_transaction(10)
        return
    for key, value in written.items():  # until it is told, either may be
        told[key] = before[key] | {value}
    producer.commit_transaction(10)
    for key, value in written.items():
        told[key] = {value}


@pytest.mark.slow
def test_spark_reads_what_fetch_gives_and_damage_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, *SETTINGS) as process:
        topics = [make(process, entry_format=each) for each in ("kafka", "pulsar")]
        fetched = {}
        for topic in topics:
            produce(process, topic, *[(f"k{number % 3}", b"%d" % number) for number in range(65)])
            until(process, topic, 3 + 5)
            fetched[topic] = rows(fetch(process, topic))
            assert read_as_spark(data, topic, live=True) == fetched[topic]
    for topic in topics:
        assert read_as_spark(data, topic, live=False) == fetched[topic]
    with LedgerCatalog(data) as catalog:
        compacted = catalog.log(TopicPartition(topics[0], 0), live=False, skip_damage=False).ledger_ids[0]
    (path,) = data.glob(f"ledgers/*/{compacted:016x}.ledger")
    whole = path.read_bytes()
    path.write_bytes(whole[:150] + bytes([whole[150] ^ 1]) + whole[151:])
    report = verify(data)
    assert not report.is_whole
    (finding,) = report.findings
    assert finding.file == str(path)
    assert finding.what.startswith("compacted ledger: entry 0")


def read_as_spark(data: Path, topic: str, *, live: bool) -> list[tuple[int, str, bytes | None]]:
    """Read as a task of the Spark source does, in slices as small as they get."""
    found = []
    with LedgerCatalog(data) as catalog:
        log = catalog.log(TopicPartition(topic, 0), live=live, skip_damage=False)
    low, high = log.log_start_offset, log.log_end_offset()
    for ledger in log.overlapping(low, high):
        for cut in ledger.cuts(low, high, SliceSize(1, 7)):
            piece = LedgerSlice(
                topic, 0, cut.low, cut.high, str(data), ledger.ledger_id, cut.start, cut.end, cut.entry_id
            )
            for batch in read_slice(piece, ("offset", "key", "value")):
                columns = batch.to_pydict()
                keys = [key.decode() for key in columns["key"]]
                found += list(zip(columns["offset"], keys, columns["value"], strict=True))
    return found
