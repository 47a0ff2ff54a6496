"""What a producer sends while storage keeps nothing is left in its socket, past a bound: bookies may stand still."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import Done, Pending, Position
from magnetar.metadata import MemoryStore
from magnetar.pulsar import server
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw
from tests.pulsar.inside import inside

MESSAGES, SIZE = 300, 1 << 20


async def test_large_messages_that_wait_to_be_stored_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Done] = []
    async with inside(MemoryEngine(MemoryStore())) as broker:
        client = broker.client()
        made = await client.ask(raw.producer("persistent://public/default/t"))
        assert made.type == BaseCommand.PRODUCER_SUCCESS
        (log,) = broker.broker.logs.open_logs.all()
        kind = type(log.log)
        append = kind.append

        def slow(self: Any, *given: Any, **about: Any) -> Pending:
            placed = append(self, *given, **about)
            waiting.append(Done())
            return Pending(placed.base_offset, waiting[-1], Position(1, len(waiting)))

        monkeypatch.setattr(kind, "append", slow)
        for number in range(MESSAGES):
            client.send((raw.send(sequence_id=number), raw.entry(b"x" * SIZE)))
        await asyncio.sleep(0.05)
        taken = len(waiting)
        assert taken * SIZE <= server.MAX_UNSETTLED_BYTES + 2 * SIZE
        assert taken > 2, "many are on their way at once"
        receipts = 0
        while receipts < MESSAGES:
            assert sum(not each.done() for each in waiting) <= taken
            for each in [each for each in waiting if not each.done()][:1]:
                each.settle()
            await asyncio.sleep(0)
            receipts += sum(told.type == BaseCommand.SEND_RECEIPT for told in client.heard())
        assert len(waiting) == MESSAGES
        assert client.socket.connection.unsettled_bytes == 0
