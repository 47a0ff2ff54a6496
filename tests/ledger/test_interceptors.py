"""Interceptors see every entry before it is written; what they give is what is stored, what they raise refuses it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger
from magnetar.metadata import MemoryStore
from magnetar.records.batch import UNKNOWN_TIME, PlainRecord, encode_batch
from magnetar.records.compression import Buffer
from magnetar.records.entry import kafka_message_head, payload_at
from tests.ledger.entries import prepared


class Stamp:
    """Marks each message's last byte, and refuses what is too long."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def before_append(self, log: ManagedLedger, message: Sequence[Buffer], messages: int) -> Sequence[Buffer]:
        whole = b"".join(message)
        if len(whole) > 1000:
            raise PermissionError("too long for this tenant")
        self.seen.append((log.name, log.log_end_offset, messages))
        return [whole[:-1], b"!"]


def message(text: bytes, count: int = 1) -> list[bytes]:
    batch = encode_batch([PlainRecord(None, text, (), 1_790_000_000_000)] * count)
    return [kafka_message_head(1_790_000_000_000, count), batch]


async def test_what_an_interceptor_gives_is_stored(tmp_path: Path) -> None:
    stamp = Stamp()
    engine = FilesEngine(tmp_path, MemoryStore(), RealDisk(), interceptors=[stamp])
    await engine.start()
    log = await prepared(
        await engine.open("public/default/persistent/t-partition-0", LedgerPolicy(flush=Flush.os))
    )
    log.append(message(b"one"), messages=1, timestamp_ms=1, earliest_ms=1)
    log.append(message(b"two", 3), messages=3, timestamp_ms=1)
    assert stamp.seen == [(log.name, 0, 1), (log.name, 1, 3)]
    entries = await log.read(0, max_bytes=1 << 20)
    assert [bytes(entry.data[payload_at(entry.data) :])[-1:] for entry in entries] == [b"!", b"!"]
    assert log.state.writer.index.min_timestamp == UNKNOWN_TIME  # type: ignore[attr-defined]  # of what it put in
    with pytest.raises(PermissionError):
        log.append(message(b"x" * 2000), messages=1, timestamp_ms=1)
    assert log.log_end_offset == 4
    await engine.close()
