"""From files and metadata to rows, without Spark's machinery: planning, slicing, damage."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.formats.layout import index_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.metadata import DirectoryLock
from magnetar.pipeline.catalog import matching
from magnetar.pipeline.ledger_reader import LedgerReader
from magnetar.pipeline.options import TopicPartition, parse_options
from magnetar.pipeline.plan import DataLost, Plan, ask_of
from magnetar.pipeline.source import admit
from magnetar.pipeline.watermarks import BrokerSilent, broker_address
from magnetar.records.batch import Header, PlainRecord, encode_batch
from magnetar.records.compression import Codec
from tests.pipeline.test_kernel import ALL, as_rows
from tests.pipeline.writer import NOW_MS, Partition, Writer, entry, frame

HEADERS = (Header("a", b"1"), Header("a", b""), Header("b", None))


def fill(partition: Partition, batches: int, *, codec: Codec = Codec.none, size: int = 100) -> None:
    for number in range(batches):
        time = NOW_MS + partition.next_offset
        partition.append(
            [
                PlainRecord(None if i % 3 else b"k%d" % i, bytes(size), HEADERS if i % 2 else (), time + i)
                for i in range(1 + number % 7)
            ],
            codec=codec,
        )


def everything(partition: Partition) -> None:
    """Three ledgers with all that records can be; the last one is open."""
    for codec in Codec:
        fill(partition, 20, codec=codec)
        partition.append(
            [PlainRecord(b"", b""), PlainRecord(None, None)], codec=codec, append_time=NOW_MS + 7
        )
    partition.close_ledger()
    partition.append([PlainRecord(b"big", os.urandom(3 << 20), HEADERS, NOW_MS)])
    partition.append([PlainRecord(b"\0\0\0\0", b"\0\0\0\1")], control=True)
    partition.append([PlainRecord(b"after", b"control", (), NOW_MS)], checksum=True)
    partition.close_ledger()
    fill(partition, 300)
    partition.close_ledger(sealed=False)


def rows(data: Path, **options: object) -> list[tuple[object, ...]]:
    given = parse_options(
        {"path": str(data), "subscribe": "t"} | {k: str(v) for k, v in options.items()}, streaming=False
    )
    plan = Plan(given)
    ask = replace(ask_of(given), columns=ALL)
    found = [as_rows(list(piece.read(ask))) for piece in plan.slices(plan.starts(), plan.ends())]
    return (
        sorted(row for piece in found for row in piece)
        if len(plan.visible) == 1
        else [r for p in found for r in p]
    )


def expected(partition: Partition) -> list[tuple[object, ...]]:
    return [
        (r.offset, r.key, r.value, r.timestamp, kind, [tuple(h) for h in r.headers])
        for r, kind in partition.expected
    ]


@pytest.fixture
def topic(tmp_path: Path) -> Partition:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    everything(partition)
    writer.finish()
    return partition


@pytest.mark.parametrize("slice_bytes", [1, 50_000, 64 << 20])
def test_rows_are_what_was_written(topic: Partition, slice_bytes: int) -> None:
    assert rows(topic.data, sliceBytes=slice_bytes) == expected(topic)


def test_small_slices_are_many_and_min_partitions_makes_them_smaller(topic: Partition) -> None:
    for options, least in (({"sliceBytes": "1"}, 9), ({"minPartitions": "6"}, 6)):
        plan = Plan(parse_options({"path": str(topic.data), "subscribe": "t"} | options, streaming=False))
        assert len(plan.slices(plan.starts(), plan.ends())) >= least


def test_offsets_inside_of_entries_cut_exactly(topic: Partition) -> None:
    for low, high in ((0, 1), (3, 5), (101, 407), (418, 10**9)):
        high = min(high, topic.next_offset)
        found = rows(
            topic.data,
            startingOffsets=json.dumps({"t": {"0": low}}),
            endingOffsets=json.dumps({"t": {"0": high}}),
        )
        assert found == [row for row in expected(topic) if low <= row[0] < high]  # type: ignore[operator]


def test_a_stored_index_is_used_and_a_damaged_one_is_not_needed(topic: Partition) -> None:
    ledger_id = 1
    plan = Plan(parse_options({"path": str(topic.data), "subscribe": "t"}, streaming=False))
    reader = plan.reader
    assert isinstance(reader, LedgerReader)
    (ledger,) = reader.logs[TopicPartition("t", 0)].overlapping(0, 1)
    path = index_path(topic.data, ledger_id)
    path.write_bytes(ledger.index.encode())
    assert SparseIndex.decode(path.read_bytes(), path)[0].positions == ledger.index.positions
    assert rows(topic.data, sliceBytes=1) == expected(topic)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert rows(topic.data) == expected(topic)


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\0\0\1", b"torn"])
def test_a_torn_tail_ends_the_log(tmp_path: Path, tail: bytes) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 10)
    if tail == b"torn":
        whole = frame(
            1, 10, entry(encode_batch([PlainRecord(b"k", b"v")], base_offset=partition.next_offset))
        )
        tail = whole[: len(whole) // 2]
    partition.close_ledger(sealed=False, tail=tail)
    assert rows(writer.finish()) == expected(partition)


def test_a_damaged_middle_is_refused_and_named(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 10)
    path = partition.close_ledger(sealed=False)
    content = bytearray(path.read_bytes())
    content[32 + 16 + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupt, match="entry 0 of ledger 1 at byte 32 is damaged"):
        rows(writer.finish())


def test_every_damaged_byte_of_a_sealed_ledger_is_found(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 3, size=10)
    path = partition.close_ledger()
    writer.finish()
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes((good[place] ^ 0x10,)) + good[place + 1 :])
        with pytest.raises(LedgerCorrupt):
            rows(tmp_path)


def test_entries_of_every_format_in_one_ledger_give_the_rows_of_fetch(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    for codec in (Codec.none, Codec.lz4):
        fill(partition, 5, codec=codec)
        for number, entry_format in enumerate(("mixed_kafka", "pulsar", "kafka") * 3):
            headers = (Header("a", b"1"), Header("b", b"x" * number))
            fields = [PlainRecord(b"k%d" % i, b"v" * i, headers, NOW_MS + i) for i in range(1 + number)]
            partition.append(fields, codec=codec, entry_format=entry_format)
    partition.close_ledger()
    fill(partition, 2)
    partition.append([PlainRecord(b"last", b"one", (), NOW_MS)], entry_format="pulsar")
    partition.close_ledger(sealed=False)
    data = writer.finish()
    for slice_bytes in (1, 64 << 20):
        assert rows(data, sliceBytes=slice_bytes) == expected(partition)
    low, high = json.dumps({"t": {"0": 19}}), json.dumps({"t": {"0": 31}})
    assert rows(data, startingOffsets=low, endingOffsets=high) == expected(partition)[19:31]


def test_an_unknown_entry_format_is_refused_with_its_place(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 2)
    partition.append([PlainRecord(b"k", b"v", (), NOW_MS)], entry_format="avro")
    partition.close_ledger()
    with pytest.raises(LedgerCorrupt, match=r"entry 2 of ledger 1 at byte \d+ is damaged.*format 'avro'"):
        rows(writer.finish())


def test_a_lost_file_is_named(topic: Partition) -> None:
    next((topic.data / "ledgers").rglob("*1.ledger")).unlink()
    with pytest.raises(LedgerNotFound, match="ledger 1 is gone"):
        rows(topic.data)


def test_time_chooses_the_first_record_that_is_young_enough(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    for codec in (Codec.none, Codec.lz4):
        fill(partition, 50, codec=codec)
        partition.close_ledger()
    fill(partition, 50)
    partition.close_ledger(sealed=False)
    data, last = writer.finish(), partition.next_offset - 1
    for offset in (0, 1, 17, 200, 401, last):
        assert rows(data, startingTimestamp=NOW_MS + offset)[0][0] == offset
        found = rows(data, endingTimestamp=NOW_MS + offset)
        assert len(found) == offset
    by_partition = json.dumps({"t": {"0": NOW_MS + 5}})
    assert rows(data, startingOffsetsByTimestamp=by_partition)[0][0] == 5
    with pytest.raises(ValueError, match="no record of"):
        rows(data, startingTimestamp=NOW_MS + last + 1)
    young = NOW_MS + last + 1
    assert rows(data, startingTimestamp=young, startingOffsetsByTimestampStrategy="latest") == []


def test_lost_records_fail_the_read_unless_told_otherwise(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    fill(partition, 10)
    partition.close_ledger()
    fill(partition, 10)
    partition.close_ledger(sealed=False)
    first_kept = int(partition._ledgers.pop(0)[1]["last_index"]) + 1
    data, start = writer.finish(), json.dumps({"t": {"0": 0}})
    with pytest.raises(DataLost, match="0 is gone"):
        rows(data, startingOffsets=start)
    with pytest.warns(UserWarning, match="0 is gone"):
        assert rows(data, startingOffsets=start, failOnDataLoss="false")[0][0] == first_kept
    assert rows(data)[0][0] == first_kept


def test_topics_are_chosen_by_name_pattern_or_partition(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for name in ("ab", "ac", "b"):
        for partition in writer.topic(name, 2):
            fill(partition, 1)
            partition.close_ledger(sealed=False)
    data = str(writer.finish())

    def chosen(**options: str) -> list[TopicPartition]:
        return list(Plan(parse_options({"path": data} | options, streaming=False)).visible)

    assert chosen(subscribe="b, ab") == [("b", 0), ("b", 1), ("ab", 0), ("ab", 1)]
    assert chosen(subscribePattern="a.") == [("ab", 0), ("ab", 1), ("ac", 0), ("ac", 1)]
    assert matching(["__consumer_offsets", "__transaction_state", "__share_group_state", "__mine", "a"], ".*") == [
        "__mine", "a",
    ]  # fmt: skip
    assert chosen(assign='{"b": [1]}') == [("b", 1)]
    with pytest.raises(ValueError, match="there is no topic 'zz'"):
        chosen(subscribe="zz")
    with pytest.raises(ValueError, match="no 7"):
        chosen(assign='{"b": [7]}')


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "exactly one of"),
        ({"subscribe": "t", "assign": "{}"}, "exactly one of"),
        ({"subscribe": "t", "strartingOffsets": "earliest"}, "unknown option 'strartingoffsets'"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "would read nothing"),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "would read nothing"),
        ({"subscribe": "t", "startingOffsets": "{"}, "must be like"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "below -2"),
        ({"subscribe": "t", "startingTimestamp": "yesterday"}, "milliseconds"),
        ({"subscribe": "t", "minPartitions": "0"}, "above 0"),
        ({"subscribe": "t", "failOnDataLoss": "maybe"}, "one of true, false"),
        ({"subscribe": "t", "columns": "value,price"}, "columns must be some of"),
        ({"assign": "[1]"}, "assign must be like"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_options({"path": "/data", **options}, streaming=False)


def test_admission_is_in_proportion_and_starves_nobody() -> None:
    a, b, c = (TopicPartition("t", p) for p in range(3))
    starts, ends = {a: 0, b: 10}, {a: 900, b: 110, c: 1}
    assert admit(starts, ends, 100) == {a: 89, b: 19, c: 1}
    assert admit(starts, ends, 5000) == ends
    assert admit(ends, ends, 1) == ends


def test_a_broker_is_asked_only_while_it_lives(tmp_path: Path) -> None:
    assert broker_address(tmp_path) is None
    told = {"pid": os.getpid(), "kafka": ["127.0.0.1:9092", "127.0.0.1:9093"]}
    (tmp_path / "broker.json").write_text(json.dumps(told))
    assert broker_address(tmp_path) is None
    lock = DirectoryLock(tmp_path)
    assert broker_address(tmp_path) == "127.0.0.1:9092,127.0.0.1:9093"
    (tmp_path / "broker.json").unlink()
    with pytest.raises(BrokerSilent, match="does not say where it listens"):
        broker_address(tmp_path)
    lock.release()
    assert broker_address(tmp_path) is None
