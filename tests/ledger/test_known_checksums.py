"""A CRC that whoever appends has held against the bytes is not counted once more: the ledger's own is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import AppendInterceptor, Flush, LedgerPolicy, ManagedLedger, Pending
from magnetar.metadata import MemoryStore
from magnetar.records.batch import PlainRecord, encode_batch, read_header
from magnetar.records.compression import Buffer
from magnetar.records.crc import MIN_COMBINED_BYTES, crc32c
from magnetar.records.entry import kafka_message_head
from tests.ledger.entries import NOW_MS, payload, prepared, read_all

_COUNTED_FROM = 21
_DICE = Random(3)


def large_batch(size: int) -> bytes:
    return encode_batch([PlainRecord(None, _DICE.randbytes(size), (), NOW_MS)])


def append_known(log: ManagedLedger, batch: bytes, crc: int) -> Pending:
    head = kafka_message_head(NOW_MS, 1) + batch[:_COUNTED_FROM]
    return log.append(
        (head, memoryview(batch)[_COUNTED_FROM:]), messages=1, timestamp_ms=NOW_MS, tail_crc=crc
    )


async def opened(
    path: Path, interceptors: Sequence[AppendInterceptor] = (), *, ready: bool = True
) -> tuple[FilesEngine, ManagedLedger]:
    engine = FilesEngine(path, MemoryStore(), RealDisk(), interceptors=list(interceptors))
    await engine.start()
    log = await engine.open("public/default/persistent/t", LedgerPolicy(flush=Flush.os))
    return engine, await prepared(log) if ready else log


@pytest.mark.parametrize("ready", [True, False])
async def test_entries_of_all_sizes_are_read_as_they_were_written(tmp_path: Path, ready: bool) -> None:
    """Also where they wait for a ledger at first."""
    engine, log = await opened(tmp_path, ready=ready)
    sizes = [
        0,
        1,
        100,
        MIN_COMBINED_BYTES - 100,
        *(MIN_COMBINED_BYTES + n for n in range(0, 130, 7)),
        900_000,
    ]
    written = [large_batch(size) for size in sizes]
    for pending in [append_known(log, batch, read_header(batch).crc) for batch in written]:
        await pending.settled()
    assert [payload(entry) for entry in await read_all(log, max_bytes=8 << 20)] == written
    await engine.close()


async def test_bytes_that_changed_meanwhile_are_found_when_they_are_read(tmp_path: Path) -> None:
    """So it is that CRC which counts, and not one of what lies in memory when it is written."""
    engine, log = await opened(tmp_path)
    batch = bytearray(large_batch(MIN_COMBINED_BYTES))
    crc = crc32c(memoryview(batch)[_COUNTED_FROM:])
    batch[-1] ^= 1
    append_known(log, bytes(batch), crc)
    with pytest.raises(LedgerCorrupt):
        await read_all(log)
    await engine.close()


class Reverses:
    """Puts in another message of the same size."""

    def before_append(self, log: ManagedLedger, message: Sequence[Buffer], messages: int) -> Sequence[Buffer]:
        return [*message[:-1], bytes(message[-1])[::-1]]


async def test_what_an_interceptor_puts_in_has_its_own(tmp_path: Path) -> None:
    engine, log = await opened(tmp_path, [Reverses()])
    batch = large_batch(MIN_COMBINED_BYTES)
    append_known(log, batch, read_header(batch).crc)
    (entry,) = await read_all(log)
    assert payload(entry)[_COUNTED_FROM:] == batch[_COUNTED_FROM:][::-1]
    await engine.close()
