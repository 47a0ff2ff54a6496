"""A walk through very many small entries is cut into pieces, and misses none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magnetar.ledger.files import walk as walking
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.walk import walk
from magnetar.ledger.formats.layout import frame_head
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import MemoryStore
from magnetar.records.entry import broker_entry_head, kafka_message_head
from tests.ledger.entries import append_durably
from tests.waiting import PATIENCE_S

LEDGER, COUNT, MOST = 7, 25, 10


def test_so_many_entries_come_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """15,000 of 60 bytes lie in a megabyte: whoever read them held everybody up for 100 ms."""
    monkeypatch.setattr(walking, "MAX_ENTRIES", MOST)
    data = b"".join(
        frame_head(LEDGER, number, entry, [], len(entry))
        for number in range(COUNT)
        for entry in [broker_entry_head(1_700_000_000_000, number) + kafka_message_head(1_700_000_000_000, 1)]
    )
    found, sizes, at, entry_id = [], [], 0, 0
    while at < len(data):
        walked = walk(
            memoryview(data)[at:],
            at,
            LEDGER,
            entry_id,
            offset=0,
            max_bytes=1 << 30,
            up_to=1 << 60,
            path=Path("x"),
        )
        found += [entry.last_offset for entry in walked.entries]
        sizes.append(len(walked.entries))
        at, entry_id = walked.at, walked.entry_id
    assert found == list(range(COUNT))
    assert sizes == [MOST, MOST, COUNT - 2 * MOST]


@pytest.mark.parametrize("size", [40_000, 200_000, 1_000_000])
async def test_an_entry_larger_than_what_is_read_at_first(tmp_path: Path, size: int) -> None:
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk())
    await engine.start()
    log = await engine.open("public/default/persistent/t", LedgerPolicy(flush=Flush.os))
    for number in range(4):
        await append_durably(log, bytes([number]) * size)
    async with asyncio.timeout(PATIENCE_S):
        for number in range(4):
            (entry,) = await log.read(number, max_bytes=1)
            assert entry.last_offset == number
            assert bytes([number]) * size in bytes(entry.data)
    await engine.close()
