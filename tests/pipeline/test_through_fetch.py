"""Through Fetch come the rows that the ledgers have."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from magnetar.client.errors import ClientError
from magnetar.client.fetch import Aborted, Fetched
from magnetar.client.settings import settings_of
from magnetar.pipeline.options import EVERYTHING, POSITIONS, parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import RecordQuery
from magnetar.pipeline.through_fetch import FetchedDamaged, FetchSlice, _gathered
from magnetar.records.batch import CONTROL, TRANSACTIONAL, PlainRecord, encode_batch
from tests.process import BrokerProcess

ALL = tuple(name for name in EVERYTHING if name not in POSITIONS)
COUNT = 300


def produce(address: str, topic: str) -> None:
    """Send records of every shape in batches of every codec, to partition 0."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5})
        for i in range(COUNT):
            headers = [("n", str(i).encode()), ("n", None), ("é", b"")] if i % 3 else []
            value = None if i % 7 == 0 else codec.encode() * i
            producer.produce(
                topic, value, key=None if i % 5 else b"k", headers=headers, partition=0, timestamp=1000 + i
            )
        assert producer.flush(30) == 0


def table(ask: RecordQuery, **options: str) -> pa.Table:
    """Return all that a plan reads, as tasks would."""
    plan = Plan(parse_options(options, streaming=False))
    pieces = plan.slices(plan.starts(), plan.ends())
    found = [batch for piece in pieces for batch in piece.read(ask)]
    return pa.Table.from_batches(found)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose topic ``t`` has records of every shape; tests only read it."""
    with BrokerProcess(tmp_path_factory.mktemp("fetch") / "data") as broker:
        produce(broker.address, "t")
        yield broker


def test_rows_are_those_of_the_ledgers(house: BrokerProcess) -> None:
    ask = RecordQuery(ALL)
    stored = table(ask, path=str(house.data), subscribe="t")
    fetched = table(ask, subscribe="t", **{"kafka.bootstrap.servers": house.address})
    assert len(stored) == 5 * COUNT
    assert fetched.equals(stored.combine_chunks()) or fetched.to_pylist() == stored.to_pylist()


def test_small_slices_leave_nothing_out_and_double_nothing(house: BrokerProcess) -> None:
    found = table(
        RecordQuery(("offset",)),
        subscribe="t",
        sliceBytes="2000",
        **{"kafka.bootstrap.servers": house.address},
    )
    assert found.column("offset").to_pylist() == list(range(5 * COUNT))


def test_offsets_and_times_choose(house: BrokerProcess) -> None:
    where = {"kafka.bootstrap.servers": house.address, "subscribe": "t"}
    some = table(
        RecordQuery(("offset",)),
        startingOffsets='{"t": {"0": 17}}',
        endingOffsets='{"t": {"0": 423}}',
        **where,
    )
    assert some.column("offset").to_pylist() == list(range(17, 423))
    timed = table(RecordQuery(("timestamp", "offset"), times_ms=(1290, 1295)), **where)
    assert timed.column("offset").to_pylist() == [COUNT * n + i for n in range(5) for i in range(290, 296)]


def test_the_place_in_a_ledger_is_null(house: BrokerProcess) -> None:
    found = table(RecordQuery(POSITIONS), subscribe="t", **{"kafka.bootstrap.servers": house.address})
    assert len(found) == 5 * COUNT
    assert all(found.column(name).null_count == len(found) for name in POSITIONS)


def test_what_only_ledgers_can_do_is_refused_by_name(house: BrokerProcess) -> None:
    where = {"kafka.bootstrap.servers": house.address, "subscribe": "t"}
    with pytest.raises(ValueError, match="ledgers"):
        table(RecordQuery(("offset",)), ledgers="1", **where)
    with pytest.raises(ValueError, match="onDamage"):
        table(RecordQuery(("offset",)), onDamage="skip", **where)


@pytest.mark.slow
def test_a_broker_that_dies_and_comes_back_is_waited_for(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data")
    produce(broker.address, "t")
    options = {"subscribe": "t", "kafka.bootstrap.servers": broker.address, "sliceBytes": "20000"}
    plan = Plan(parse_options(options, streaming=False))
    pieces = plan.slices(plan.starts(), plan.ends())
    assert len(pieces) > 2
    found = list(pieces[0].read(RecordQuery(("offset",))))
    broker.kill()

    def come_back() -> None:
        time.sleep(0.5)
        start_broker(tmp_path / "data", kafka=broker.address)

    again = threading.Thread(target=come_back)
    again.start()
    for piece in pieces[1:]:
        found += piece.read(RecordQuery(("offset",)))
    again.join()
    assert pa.Table.from_batches(found).column("offset").to_pylist() == list(range(5 * COUNT))


def test_a_batch_that_arrives_damaged_is_an_error(
    house: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magnetar.client import fetch

    honest = fetch._Question.answer

    def tampered(self: Any) -> fetch.Fetched:
        answer = honest(self)
        records = bytearray(answer.records)
        records[len(records) // 2] ^= 1
        return answer._replace(records=memoryview(records))

    monkeypatch.setattr(fetch._Question, "answer", tampered)
    with pytest.raises(FetchedDamaged, match="of t-0, as fetched, is damaged"):
        table(RecordQuery(("offset",)), subscribe="t", **{"kafka.bootstrap.servers": house.address})


def test_nobody_there_is_said_with_the_address() -> None:
    options = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.delivery.timeout.ms": "1",
    }
    with pytest.raises(ClientError, match=r"no broker answers at 127\.0\.0\.1:1"):
        table(RecordQuery(("offset",)), **options)


def test_aborted_transactions_are_left_out_where_only_committed_records_are_wanted() -> None:
    """Two producers' transactions, one within the other, as Kafka's Fetch brings them: batches, marks, a list."""
    parts: list[bytes] = []
    offset = 0

    def add(
        values: list[bytes], producer_id: int, attributes: int = TRANSACTIONAL, key: bytes | None = None
    ) -> None:
        nonlocal offset
        records = [PlainRecord(key, value, (), 1) for value in values]
        parts.append(
            encode_batch(
                records, base_offset=offset, attributes=attributes, producer_id=producer_id, producer_epoch=0
            )
        )
        offset += len(records)

    def mark(producer_id: int, kind: int) -> None:
        add([b"mark"], producer_id, TRANSACTIONAL | CONTROL, struct.pack(">hh", 0, kind))

    add([b"lost 0", b"lost 1"], 1)
    add([b"kept 2"], 2)
    mark(2, 1)
    add([b"plain 4"], 1, 0)
    add([b"lost 5"], 1)
    mark(1, 0)
    add([b"kept 7"], 1)
    add([b"lost 8"], 2)
    mark(1, 1)
    mark(2, 0)
    aborted = (Aborted(2, 8), Aborted(1, 0))
    fetched = Fetched(memoryview(b"".join(parts)), offset, offset, aborted)
    piece = FetchSlice("t", 0, 0, offset, settings_of({"bootstrap.servers": "localhost:1"}), b"")

    def seen(ask: RecordQuery) -> list[bytes]:
        (some,) = _gathered(iter([fetched]), piece, ask)
        return [value for batch in some.arrow(piece, ask) for value in batch.column(0).to_pylist()]

    assert seen(RecordQuery(("value",), read_committed=True)) == [b"kept 2", b"plain 4", b"kept 7"]
    everything = [b"lost 0", b"lost 1", b"kept 2", b"plain 4", b"lost 5", b"kept 7", b"lost 8"]
    assert seen(RecordQuery(("value",))) == everything
