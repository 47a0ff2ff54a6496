"""Messages that storage did not keep: producers are sent away, and nothing sent behind them goes in first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from magnetar.ledger.files.disk import File
from magnetar.ledger.memory import MemoryDisk, MemoryEngine, MemoryFile
from magnetar.metadata import MemoryStore
from magnetar.pulsar import serving
from magnetar.records.compression import Buffer
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw
from tests.pulsar.inside import Client, Inside, inside

TOPIC = "persistent://public/default/t"
RECEIPT, ERROR, CLOSED = BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER


class CountedDisk(MemoryDisk):
    """Counts the writes to ledgers."""

    writes = 0

    def open(self, path: Path, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return CountedFile(self, file._data) if path.suffix == ".ledger" else file  # type: ignore[attr-defined]


class CountedFile(MemoryFile):
    def write(self, parts: Sequence[Buffer], at: int) -> None:
        self._disk.writes += 1  # type: ignore[attr-defined]
        super().write(parts, at)


def messages(first: int, last: int, size: int = 10) -> list[tuple[BaseCommand, bytes]]:
    return [(raw.send(1, n), raw.entry(b"v" * size, sequence_id=n)) for n in range(first, last)]


async def producing(broker: Inside) -> Client:
    client = broker.client()
    answer = await client.ask(raw.producer(TOPIC))
    assert answer.type == BaseCommand.PRODUCER_SUCCESS
    return client


@pytest.mark.parametrize("flush", ["always", "os"])
async def test_what_comes_at_once_is_written_at_once(flush: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TURN_S", 60.0)  # on a busy machine others would have their turn between
    disk = CountedDisk()
    async with inside(MemoryEngine(MemoryStore(), disk), flush=flush) as broker:
        client = await producing(broker)
        client.send(*messages(0, 1))
        await client.hears(RECEIPT)
        before = disk.writes
        client.send(*messages(1, 41))
        places = [(await client.hears(RECEIPT)).send_receipt for _ in range(40)]
        assert disk.writes - before == 1
        assert [each.sequence_id for each in places] == list(range(1, 41))
        assert [each.message_id.entryId for each in places] == list(range(1, 41))


@pytest.mark.parametrize("flush", ["always", "os"])
async def test_producers_of_what_was_not_kept_are_sent_away(
    flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine they would be taken in two turns, the second of which comes behind what was refused.
    monkeypatch.setattr(serving, "TURN_S", 60.0)
    disk = MemoryDisk()
    async with inside(MemoryEngine(MemoryStore(), disk), flush=flush) as broker:
        client = await producing(broker)
        client.send(*messages(0, 1))
        await client.hears(RECEIPT)
        disk.capacity = disk.used() + 2_000
        client.send(*messages(1, 4, 2_000))
        refused = [(await client.hears(ERROR, RECEIPT)).send_error.sequence_id for _ in range(3)]
        assert refused == [1, 2, 3]
        assert (await client.hears(CLOSED, RECEIPT, ERROR)).type == CLOSED
        disk.capacity = None
        client.send(*messages(4, 5))  # sent before it knew
        for _ in range(10):
            await asyncio.sleep(0)
        assert not client.heard(), "what comes behind what was refused must not go in before it"
        again = await producing(broker)
        again.send(*messages(1, 5))
        assert [(await again.hears(RECEIPT)).send_receipt.sequence_id for _ in range(4)] == [1, 2, 3, 4]
        (topic,) = broker.handler.services.topics.all_open()
        assert (topic.log.log_end_offset, topic.log.high_watermark) == (5, 5)
