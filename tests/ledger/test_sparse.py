"""The sparse index: its bytes, those of its first version, and what it says of times."""

from __future__ import annotations

import struct
from itertools import pairwise
from operator import le
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from magnetar.doctor.ledgers import Gravity, verify
from magnetar.doctor.ledgers_repair import repair
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import index_path
from magnetar.ledger.formats.sparse import POINT_EVERY_BYTES, SparseIndex
from magnetar.ledger.port import LedgerPolicy
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.entry import kafka_message_head
from tests.ledger.directory import LOGS, fill, with_engine
from tests.ledger.entries import NOW_MS, append, batch
from tests.ledger.test_repair import ledgers_of

TIMES = st.integers(NOW_MS - 9, NOW_MS + 9) | st.just(UNKNOWN_TIME) | st.just(-1)
ENTRIES = st.lists(st.tuples(st.integers(1, POINT_EVERY_BYTES), st.integers(1, 9), TIMES), max_size=40)
PATH = Path("some.index")


def index_of(entries: list[tuple[int, int, int]]) -> SparseIndex:
    index = SparseIndex(7, 100)
    for size, messages, earliest_ms in entries:
        index.add(size, messages, NOW_MS, earliest_ms)
    return index


def columns(index: SparseIndex) -> list[list[int]]:
    return [list(getattr(index, name)) for name in ("positions", "entry_ids", "offsets", "times", "earliest")]


@given(ENTRIES, st.binary(max_size=20))
def test_an_index_comes_back(entries: list[tuple[int, int, int]], snapshot: bytes) -> None:
    index = index_of(entries)
    found, kept = SparseIndex.decode(index.encode(snapshot), PATH)
    assert (columns(found), kept) == (columns(index), snapshot)
    assert (found.end, found.entries, found.next_offset) == (index.end, index.entries, index.next_offset)


@given(ENTRIES, st.integers(0, 40), st.binary(max_size=20), st.sampled_from(["a boot", "é", "b" * 36]))
def test_what_was_not_flushed_counts_in_its_boot_alone(
    entries: list[tuple[int, int, int]], durable: int, snapshot: bytes, boot: str
) -> None:
    index, before = index_of(entries), index_of(entries[:durable])
    index.flushed = before.mark()
    data = index.encode(snapshot, boot=boot)
    found, kept = SparseIndex.decode(data, PATH, boot)
    assert (columns(found), found.mark(), kept) == (columns(index), index.mark(), snapshot)
    assert found.flushed == before.mark()
    for other in ("another", None):
        found, kept = SparseIndex.decode(data, PATH, other)
        assert kept is None
        assert columns(found)[:4] == columns(before)[:4]
        assert all(map(le, found.earliest, before.earliest)), "never later than it was"
        assert found.mark() == found.flushed == before.mark()


@given(ENTRIES, st.data())
def test_an_index_that_was_cut_short_is_refused(
    entries: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    whole = index_of(entries).encode(b"snapshot", boot="a boot")[:-4]
    with pytest.raises(LedgerCorrupt):
        SparseIndex.decode(with_crc(whole[: data.draw(st.integers(0, len(whole) - 1))]), PATH, "a boot")


@given(ENTRIES)
def test_each_point_knows_the_earliest_time_up_to_the_next(entries: list[tuple[int, int, int]]) -> None:
    index = index_of(entries)
    firsts = [*index.entry_ids, len(entries)]
    due = [min(earliest for _, _, earliest in entries[first:stop]) for first, stop in pairwise(firsts)]
    assert list(index.earliest) == due
    assert index.min_timestamp == min(due, default=UNKNOWN_TIME)


@given(ENTRIES, st.binary(max_size=20))
def test_the_first_version_is_read_and_knows_no_earliest_time(
    entries: list[tuple[int, int, int]], snapshot: bytes
) -> None:
    index = index_of(entries)
    body = struct.pack(
        ">8sQQQQqQQ", b"MGINDEX1", 7, index.end, index.entries, index.next_offset, index.max_timestamp,
        len(index.positions), len(snapshot),
    )  # fmt: skip
    for point in zip(index.positions, index.entry_ids, index.offsets, index.times, strict=True):
        body += struct.pack(">qqqq", *point)
    found, kept = SparseIndex.decode(with_crc(body + snapshot), PATH)
    assert columns(found)[:4] == columns(index)[:4]
    assert list(found.earliest) == [UNKNOWN_TIME] * len(index.positions)
    assert kept == snapshot
    found.add(10, 1, NOW_MS, NOW_MS)  # a broker goes on with it
    assert len(found.earliest) == len(found.positions)
    with pytest.raises(LedgerCorrupt, match="another version"):
        SparseIndex.decode(with_crc(b"MGINDEX4" + body[8:] + snapshot), PATH)


def with_crc(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32c(body))


def test_what_recovery_reads_anew_has_no_known_times(tmp_path: Path) -> None:
    async def earliest(engine: FilesEngine) -> tuple[int, int]:
        log = await engine.open(LOGS[0], LedgerPolicy())
        writer = log.state.writer  # type: ignore[attr-defined]
        before = writer.index.min_timestamp if writer else UNKNOWN_TIME
        message = [kafka_message_head(NOW_MS, 1), batch(b"x")]
        appended = log.append(message, messages=1, timestamp_ms=NOW_MS, earliest_ms=NOW_MS)
        assert appended.done is not None
        await appended.done
        return before, log.state.writer.index.min_timestamp  # type: ignore[attr-defined]

    assert with_engine(tmp_path, earliest) == (UNKNOWN_TIME, NOW_MS)
    assert with_engine(tmp_path, earliest) == (NOW_MS, NOW_MS)
    for path in tmp_path.rglob("*.index"):
        path.unlink()
    assert with_engine(tmp_path, earliest) == (UNKNOWN_TIME, UNKNOWN_TIME)


def test_a_time_that_cannot_be_the_earliest_is_named_and_mended(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    assert verify(data).findings == ()
    path = index_path(data, ledgers_of(data)[0])
    index, snapshot = SparseIndex.decode(path.read_bytes(), path)
    index.earliest[0] = NOW_MS
    path.write_bytes(index.encode(snapshot))
    assert verify(data).findings == ()  # it is the latest time of an entry, and may be the earliest
    index.earliest[0] = NOW_MS + 1
    path.write_bytes(index.encode(snapshot))
    (finding,) = verify(data).findings
    assert (finding.gravity, finding.file) == (Gravity.damage, str(path))
    repair(data)
    assert verify(data).findings == ()
    assert SparseIndex.decode(path.read_bytes(), path)[0].min_timestamp == UNKNOWN_TIME


def test_what_may_have_come_behind_the_last_point_is_no_reason_to_doubt(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)

    async def older(engine: FilesEngine) -> bytes:
        log = await engine.open(LOGS[0], LedgerPolicy())
        path = index_path(data, log.ledgers()[-1].ledger_id)
        before = path.read_bytes()
        appended = append(log, b"older", timestamp_ms=NOW_MS - 5)
        assert appended.done is not None
        await appended.done
        return before

    before = with_engine(data, older)
    path = index_path(data, ledgers_of(data)[-1])
    index, snapshot = SparseIndex.decode(before, path)
    index.earliest[-1] = NOW_MS
    path.write_bytes(index.encode(snapshot))
    assert not [each for each in verify(data).findings if each.gravity is Gravity.damage]
