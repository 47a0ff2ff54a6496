"""Damaged conversations, as many as ``MAGNETAR_CONVERSATIONS`` says: no surprise in the log, and nothing is kept."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import pytest

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw
from tests.pulsar.inside import inside, settled
from tests.pulsar.test_patterns import topics_of, watch

COUNT = int(os.environ.get("MAGNETAR_CONVERSATIONS", "500"))
A_PART = 20_000
"""After so many the resident size is looked at, and all that come then may add little to it."""
MAX_GROWTH_BYTES = 32 << 20
T = "persistent://public/default/t"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(0)  # it takes as long as it is told to
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
    resident = 0
    async with inside() as broker:
        for number in range(COUNT):
            if number == A_PART:
                resident = resident_bytes()
            said = bytearray(b"".join([whole[0], *dice.choices(whole, k=6)]))
            for _ in range(dice.randrange(4)):
                said[dice.randrange(len(said))] = dice.randrange(256)
            client = broker.client(connect=False)
            client.feed(bytes(said[: dice.randrange(len(said) + 1)]))
            await settled(dice.randrange(4))
            client.leave()
            assert not [each for each in caplog.records if each.exc_info], (
                f"seed {seed}, conversation {number}"
            )
        await settled(300)
        if resident:
            print(f"{COUNT} conversations: {resident >> 20} MB, at the end {resident_bytes() >> 20} MB")
            assert resident_bytes() - resident < MAX_GROWTH_BYTES
        assert not [each for each in caplog.records if each.exc_info], f"seed {seed}"
        assert broker.broker.serving.memory.held_bytes == 0, f"seed {seed}"
        assert broker.broker.serving.connections.count == broker.services.watches.count == 0, f"seed {seed}"
        good = broker.client()
        assert (await good.ask(raw.producer(T))).type == BaseCommand.PRODUCER_SUCCESS, f"seed {seed}"
