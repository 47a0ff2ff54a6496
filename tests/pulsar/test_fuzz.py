"""Damaged conversations, as many as ``MAGNETAR_CONVERSATIONS`` says: no surprise in the log, and nothing is kept."""

from __future__ import annotations

import logging
import os
import random

import pytest

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw
from tests.pulsar.inside import inside, settled
from tests.pulsar.test_patterns import topics_of, watch

COUNT = int(os.environ.get("MAGNETAR_CONVERSATIONS", "500"))
T = "persistent://public/default/t"


async def test_damaged_conversations_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    seed = int((os.environ.get("CI") and 7) or random.randrange(1 << 32))
    dice = random.Random(seed)
    caplog.set_level(logging.ERROR)
    whole = [
        raw.frame(raw.hello()),
        raw.frame(raw.producer(T)),
        raw.frame(raw.send(), raw.entry()),
        raw.frame(raw.subscribe(T)),
        raw.frame(raw.flow(10)),
        raw.frame(raw.ack(0, 0)),
        raw.frame(topics_of(".*")),
        raw.frame(watch(".*")),
        raw.frame(raw.ping()),
    ]
    async with inside() as broker:
        for _ in range(COUNT):
            said = bytearray(b"".join([whole[0], *dice.choices(whole, k=6)]))
            for _ in range(dice.randrange(4)):
                said[dice.randrange(len(said))] = dice.randrange(256)
            client = broker.client(connect=False)
            client.feed(bytes(said[: dice.randrange(len(said) + 1)]))
            await settled(dice.randrange(4))
            client.leave()
        await settled(300)
        assert not [each for each in caplog.records if each.exc_info], f"seed {seed}"
        assert broker.broker.memory.held_bytes == 0, f"seed {seed}"
        assert broker.broker.connections.count == broker.services.watches.count == 0, f"seed {seed}"
        good = broker.client()
        assert (await good.ask(raw.producer(T))).type == BaseCommand.PRODUCER_SUCCESS, f"seed {seed}"
