"""What a subscription reads, or must not read, when it begins anew, is moved, or is paused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.ledger.port import Position
from magnetar.records.compression import Buffer
from tests.pulsar.test_dispatch import KEY_SHARED, Ear, House, house, settle


def texts(ear: Ear) -> list[str]:
    return [text for _, text, _ in ear.heard]


@pytest.mark.parametrize("kind", ["shared", *KEY_SHARED])
async def test_what_is_acknowledged_out_of_order_does_not_come_again(kind: str) -> None:
    home = await house(kind)
    for number in range(6):
        home.write(number)
    first, ear = home.join()
    await settle()
    for number in (1, 3, 4):
        home.subscription.acknowledge(first, ear.heard[number][0], None)
    home.subscription.remove(first)
    _, second = home.join()
    await settle()
    assert texts(second) == ["0", "2", "5"]


@pytest.mark.parametrize("kind", KEY_SHARED)
async def test_what_waited_for_its_keys_consumer_does_not_come_behind_a_seek(kind: str) -> None:
    home = await house(kind)
    for number in range(5):
        home.write(number, partition_key="k")
    home.join(permits=1)
    await settle()
    ledger = home.log.ledgers()[0].ledger_id
    home.subscription.reset(lambda: home.subscription.cursor.seek(Position(ledger, 5)))
    _, ear = home.join()
    home.write(5, partition_key="k")
    await settle()
    assert texts(ear) == ["5"]


class Pausing(Ear):
    """Somebody else begins to read in the place of its consumer when it gets its first message."""

    def __init__(self, home: House) -> None:
        super().__init__()
        self._home = home

    def deliver(self, parts: Sequence[Buffer]) -> None:
        super().deliver(parts)
        self._home.subscription.pause()


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_a_subscription_that_is_paused_while_it_sends_does_not_read_on(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await house(kind)
    for number in range(60):
        home.write(number)
    consumer, _ = home.join(permits=0)
    consumer.sink = ear = Pausing(home)
    reads: list[bool] = []
    read = home.log.read

    async def noted(*args: Any, **kwargs: Any) -> Any:
        reads.append(home.subscription.paused)
        return await read(*args, **kwargs)

    monkeypatch.setattr(home.log, "read", noted)
    home.subscription.flow(consumer, 100)
    await settle()
    assert home.subscription.paused
    assert reads
    assert not any(reads)
    had = len(ear.heard)
    home.subscription.go_on()
    await settle()
    assert texts(ear)[had:] == [str(number) for number in range(len(ear.heard) - had)]
