"""A filter of time leaves unread what is too old and what is too young, and changes no row."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from magnetar.ledger.files import ledger_file
from magnetar.ledger.formats import sparse
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerPolicy, ManagedLedger
from magnetar.metadata import MemoryStore, SqliteFile
from magnetar.pipeline import ledger_walk
from magnetar.pipeline.filters import pushed
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan, ask_of
from magnetar.pipeline.slices import LedgerSlice
from magnetar.records.batch import UNKNOWN_TIME, PlainRecord, encode_batch, read_header, with_log_append_time
from magnetar.records.check import check_and_open
from magnetar.records.compression import Codec
from magnetar.records.entry import kafka_message_head
from tests.pipeline.test_engine import opened
from tests.pipeline.writer import NOW_MS

Row = tuple[int, int]
"""An offset, and the record's time in ms."""


@pytest.fixture(autouse=True)
def _many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sparse, ledger_walk, ledger_file):
        monkeypatch.setattr(module, "POINT_EVERY_BYTES", 700)


async def append(
    log: ManagedLedger,
    times: Sequence[int],
    *,
    codec: Codec = Codec.none,
    stamp: int | None = None,
    known: bool = True,
    published: int | None = None,
) -> list[Row]:
    """Append one batch as a broker does; give its rows. ``stamp`` is the broker's own time for all of them.

    A batch that was ``published`` is for the index what one of a Pulsar client is: nobody looked at its messages.
    """
    base = log.log_end_offset
    records = [PlainRecord(b"k", b"v" * 20, (), time) for time in times]
    batch = encode_batch(records, base_offset=base, codec=codec)
    if stamp is not None:
        batch = with_log_append_time(batch, read_header(batch), stamp)
    _, header, _, earliest_ms = check_and_open(memoryview(batch))
    appended = log.append(
        [kafka_message_head(NOW_MS, len(records)), batch], messages=len(records),
        timestamp_ms=header.max_timestamp if published is None else published,
        earliest_ms=earliest_ms if known and published is None else UNKNOWN_TIME,
    )  # fmt: skip
    if appended.done is not None:
        await appended.done
    return [(base + number, time if stamp is None else stamp) for number, time in enumerate(times)]


def keep(data: Path, store: MemoryStore) -> None:
    kept = SqliteFile(data / "metadata.sqlite")
    for path, stored in store.blocking.scan("/"):
        kept.put(path, stored.value)
    kept.close()


def read(data: Path, low_ms: int, high_ms: int, slice_bytes: int) -> tuple[list[Row], int]:
    """Return the rows of ``[low_ms, high_ms)``, and how many bytes of ledgers were to be looked at for them."""
    options = parse_options(
        {"path": str(data), "subscribe": "t", "sliceBytes": str(slice_bytes)}, streaming=False
    )
    scope, _ = pushed([GreaterThanOrEqual(("timestamp",), at(low_ms)), LessThan(("timestamp",), at(high_ms))])
    plan = Plan(options)
    ask = scope.narrowed(ask_of(options))
    found, size = [], 0
    for piece in plan.slices(plan.starts(), plan.ends(), scope):
        assert isinstance(piece, LedgerSlice)
        size += piece.end - piece.start
        for batch in piece.read(ask):
            stamps = [int(time.timestamp() * 1000) for time in batch.column("timestamp").to_pylist()]
            found += list(zip(batch.column("offset").to_pylist(), stamps, strict=True))
    plan.close()
    return found, size


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def as_first_version(path: Path) -> None:
    """Write an index as it was written before there were earliest times."""
    index, snapshot = SparseIndex.decode(path.read_bytes(), path)
    points = zip(index.positions, index.entry_ids, index.offsets, index.times, strict=True)
    head = struct.pack(
        ">8sQQQQqQQ", b"MGINDEX1", index.ledger_id, index.end, index.entries, index.next_offset, index.max_timestamp,
        len(index.positions), len(snapshot),
    )  # fmt: skip
    body = head + b"".join(struct.pack(">qqqq", *point) for point in points) + snapshot
    path.write_bytes(body + struct.pack(">I", crc32c(body)))


def batches_of(random: Random) -> list[list[int]]:
    """Times of batches: they mostly go on, and are out of order within batches and from one to the next."""
    disorder = random.choice((0, 0, 3, 50, 400))
    now, found = NOW_MS, []
    for _ in range(random.randrange(1, 120)):
        now += random.choice((0, 1, 10, 40))
        start = now - (random.randrange(800) if random.random() < 0.02 else random.randint(0, disorder))
        found.append([start + random.randint(-disorder, disorder) for _ in range(random.choice((1, 2, 9)))])
    return found


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_a_whole_read(tmp_path: Path, seed: int) -> None:
    random, store = Random(seed), MemoryStore()
    policy = LedgerPolicy(max_ledger_bytes=random.choice((4_000, 1 << 30)))

    async def write() -> list[Row]:
        rows: list[Row] = []
        async with opened(tmp_path, store, policy) as log:
            for times in batches_of(random):
                stamp = times[0] if random.random() < 0.1 else None
                rows += await append(
                    log, times, codec=random.choice(list(Codec)), stamp=stamp, known=random.random() < 0.9
                )
                if random.random() < 0.02:
                    log.checkpoint()  # type: ignore[attr-defined]
                    await log.quiet()  # type: ignore[attr-defined]
            keep(tmp_path, store)
            compare(rows)
        return rows

    def compare(rows: list[Row]) -> None:
        last = max(time for _, time in rows)
        for _ in range(12):
            low = random.randint(NOW_MS - 50, last + 50)
            high = low + random.choice((0, 1, 30, 300, 10_000))
            due = [row for row in rows if low <= row[1] < high]
            assert read(tmp_path, low, high, random.choice((1, 2_000, 64 << 20)))[0] == due, f"seed {seed}"

    rows = asyncio.run(write())
    keep(tmp_path, store)
    compare(rows)
    indexes = sorted((tmp_path / "ledgers").rglob("*.index"))
    assert indexes
    for path in indexes:
        if random.random() < 0.7:
            as_first_version(path)
    compare(rows)
    for path in indexes:
        path.unlink()
    compare(rows)


async def steady(data: Path, store: MemoryStore, policy: LedgerPolicy) -> list[Row]:
    rows: list[Row] = []
    async with opened(data, store, policy) as log:
        for number in range(200):
            rows += await append(log, [NOW_MS + 10 * number + each for each in range(5)])
    keep(data, store)
    return rows


@pytest.mark.parametrize("ledger_bytes", [6_000, 1 << 30])
async def test_what_is_too_young_is_not_looked_at(tmp_path: Path, ledger_bytes: int) -> None:
    store = MemoryStore()
    rows = await steady(tmp_path, store, LedgerPolicy(max_ledger_bytes=ledger_bytes))
    low, high = NOW_MS + 400, NOW_MS + 420
    due = [row for row in rows if low <= row[1] < high]
    for slice_bytes in (1, 64 << 20):
        found, size = read(tmp_path, low, high, slice_bytes)
        assert found == due
        assert 0 < size < 5_000
    assert read(tmp_path, NOW_MS - 99, NOW_MS - 9, 1) == ([], 0)
    whole = sum(path.stat().st_size for path in (tmp_path / "ledgers").rglob("*.ledger"))
    assert whole > 40_000
    for path in (tmp_path / "ledgers").rglob("*.index"):
        as_first_version(path)
    found, size = read(tmp_path, low, high, 1)
    assert found == due
    assert ledger_bytes == 6_000 or size > whole // 2


@pytest.mark.parametrize("ledger_bytes", [6_000, 1 << 30])
async def test_messages_later_than_their_batch_was_published_are_not_left_out(
    tmp_path: Path, ledger_bytes: int
) -> None:
    store, later = MemoryStore(), NOW_MS + 1_000_000
    async with opened(tmp_path, store, LedgerPolicy(max_ledger_bytes=ledger_bytes)) as log:
        for number in range(200):
            times = [NOW_MS + 10 * number + each for each in range(5)]
            if number == 50:
                due = await append(log, [later] * 5, published=NOW_MS + 500)
            else:
                await append(log, times)
    keep(tmp_path, store)
    found, size = read(tmp_path, later, later + 1, 1)
    assert found == due
    assert 0 < size < 5_000


async def test_whole_ledgers_are_left_out_without_a_look_at_their_index(tmp_path: Path) -> None:
    store = MemoryStore()
    await steady(tmp_path, store, LedgerPolicy(max_ledger_bytes=6_000))
    for path in sorted((tmp_path / "ledgers").rglob("*.ledger"))[3:-1]:
        path.unlink()
        path.with_suffix(".index").unlink()
    assert len(read(tmp_path, NOW_MS, NOW_MS + 10, 1)[0]) == 5


async def test_a_hole_in_the_middle_is_left_out_if_it_is_large(tmp_path: Path) -> None:
    store, rows = MemoryStore(), []
    async with opened(tmp_path, store, LedgerPolicy()) as log:
        for number in range(200):
            time = NOW_MS if number in (0, 199) else NOW_MS + 1000
            rows += await append(log, [time] * 5)
    keep(tmp_path, store)
    due = [row for row in rows if row[1] == NOW_MS]
    found, size = read(tmp_path, NOW_MS, NOW_MS + 1, 8_000)
    assert found == due
    assert size < 3_000
    found, size = read(tmp_path, NOW_MS, NOW_MS + 1, 64 << 20)
    assert found == due
    assert size > 30_000


@pytest.mark.parametrize("ledger_bytes", [6_000, 1 << 30])
async def test_the_edges_of_what_is_wanted_belong_to_it(tmp_path: Path, ledger_bytes: int) -> None:
    store = MemoryStore()
    rows = await steady(tmp_path, store, LedgerPolicy(max_ledger_bytes=ledger_bytes))
    for number in range(0, 200, 3):
        for low, high in ((10 * number, 10 * number + 1), (10 * number - 5, 10 * number + 1)):
            low, high = NOW_MS + low, NOW_MS + high
            due = [row for row in rows if low <= row[1] < high]
            assert due
            assert read(tmp_path, low, high, 1)[0] == due


async def test_what_came_behind_a_checkpoint_may_be_older(tmp_path: Path) -> None:
    store = MemoryStore()
    async with opened(tmp_path, store, LedgerPolicy()) as log:
        await append(log, [NOW_MS + 1000] * 3)
        log.checkpoint()  # type: ignore[attr-defined]
        for _ in range(400):
            if any(tmp_path.rglob("*.index")):
                break
            await asyncio.sleep(0.005)
        rows = await append(log, [NOW_MS])
        keep(tmp_path, store)
        (path,) = tmp_path.rglob("*.index")
        assert SparseIndex.decode(path.read_bytes(), path)[0].min_timestamp == NOW_MS + 1000
        assert read(tmp_path, NOW_MS, NOW_MS + 1, 1)[0] == rows
