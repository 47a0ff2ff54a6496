"""The producers' snapshot: what is kept comes back, damage is noticed, and yesterday's directories are read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.port import Snapshot
from magnetar.ledger.transactions import AbortedTransaction
from magnetar.logs.producer_snapshot import Kept, Row, SnapshotUnreadable, decode, encode
from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.records.crc import crc32c
from tests.admin.house import House, drafted
from tests.ledger.entries import NOW_MS as NOW

INT16, INT32, INT64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))
ROWS = st.lists(
    st.builds(
        Row,
        INT64,
        INT16,
        st.lists(st.builds(Kept, INT32, INT32, INT64, INT64), max_size=5),
        st.none() | st.integers(0, 1 << 62),
        INT32,
        INT64,
        INT32,
    ),
    max_size=6,
)
ABORTED = st.lists(st.builds(AbortedTransaction, INT64, INT64, INT64, INT64), max_size=4)
SOME = [Row(7, 2, [Kept(0, 4, 100, 1000), Kept(5, 9, 105, 1001)]), Row(8, 0, [])]
# As the version before wrote it: no magic, no lengths, no checksum.
YESTERDAYS = bytes.fromhex(
    "0000000000000007 0002 02"
    "00000000 00000004 0000000000000064 00000000000003e8"
    "00000005 00000009 0000000000000069 00000000000003e9"
    "0000000000000008 0000 00"
)


@given(ROWS, ABORTED)
def test_what_is_kept_comes_back(rows: list[Row], aborted: list[AbortedTransaction]) -> None:
    assert decode(encode(rows, aborted)) == (rows, aborted)


def test_an_earlier_broker_must_not_read_what_it_knows_nothing_of() -> None:
    assert encode(SOME)[4] == 1
    assert encode([SOME[0]._replace(first_offset=100)])[4] == 2
    assert encode(SOME, [AbortedTransaction(7, 100, 105, 106)])[4] == 2


@given(ROWS, ABORTED, st.data())
def test_a_changed_byte_is_noticed(
    rows: list[Row], aborted: list[AbortedTransaction], data: st.DataObject
) -> None:
    whole = bytearray(encode(rows, aborted))
    at = data.draw(st.integers(4, len(whole) - 1))  # not the magic: without it, it would be one of yesterday
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SnapshotUnreadable):
        decode(bytes(whole))


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for each in (data, b"MGPS" + data):
        try:
            decode(each)
        except SnapshotUnreadable:
            pass


def test_yesterdays_snapshots_are_read() -> None:
    assert decode(YESTERDAYS) == (SOME, [])
    assert decode(b"") == ([], [])


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32c(body))


def test_what_a_later_version_adds_to_a_row_is_passed_over() -> None:
    body = bytearray(encode(SOME)[:-4])
    (length,) = struct.unpack_from(">H", body, 12)
    body[12:14] = struct.pack(">H", length + 8)
    body[14 + length : 14 + length] = struct.pack(">q", 105)
    assert decode(sealed(bytes(body))) == (SOME, [])


def test_a_version_that_must_not_be_read_is_refused() -> None:
    body = bytearray(encode(SOME)[:-4])
    body[4] = 3
    with pytest.raises(SnapshotUnreadable, match="version 3"):
        decode(sealed(bytes(body)))


@pytest.mark.parametrize("kept", ["whole", "damaged", "none"])
async def test_producers_are_known_again_with_or_without_a_snapshot(tmp_path: Path, kept: str) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        batch = encode_batch(
            [PlainRecord(b"k", b"v", (), NOW)] * 5, producer_id=9, producer_epoch=2, base_sequence=0
        )
        durable = partition.produce(await drafted(partition, memoryview(batch))).done
        assert durable is not None
        await durable
        whole = partition.producers_snapshot()
        again = Partition(partition.topic, 0, partition.log, lambda: NOW)
        data = {"whole": whole, "damaged": whole[:-1] + bytes([whole[-1] ^ 1]), "none": b""}[kept]
        again.log.snapshot = Snapshot(5, data) if data else None
        await again.load()
        assert again.producers_snapshot() == whole


async def test_transactions_of_a_log_that_was_taken_over_are_known_though_it_does_not_say_so(
    tmp_path: Path,
) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        batch = encode_batch(
            [PlainRecord(b"k", b"v", (), NOW)] * 5,
            attributes=TRANSACTIONAL,
            producer_id=9,
            producer_epoch=2,
            base_sequence=0,
        )
        durable = partition.produce(await drafted(partition, memoryview(batch))).done
        assert durable is not None
        await durable
        partition.log.transactions, partition.log.snapshot = None, None
        assert not partition.log.has_transactions
        await Partition(partition.topic, 0, partition.log, lambda: NOW).load()
        assert (partition.log.last_stable_offset, partition.log.high_watermark) == (0, 5)
