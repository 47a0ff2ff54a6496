"""Subscriptions that read again: what waited, and what was acknowledged."""

from __future__ import annotations

import pytest

from tests.pulsar.test_dispatch import KEY_SHARED, KINDS, house, settle


@pytest.mark.parametrize("kind", KEY_SHARED)
async def test_what_waited_is_read_again_and_waits_no_more(kind: str) -> None:
    home = await house(kind)
    consumer, ear = home.join(2)
    for number in range(6):
        home.write(number, partition_key="k")
    await settle()
    assert [text for _, text, _ in ear.heard] == ["0", "1"], "the others wait for the room of this consumer"
    for place, _, _ in ear.heard:
        home.subscription.acknowledge(consumer, place, None)
    home.subscription.pause()
    home.subscription.flow(consumer, 10)
    await settle()
    assert len(ear.heard) == 2, "nothing is sent while it is paused"
    home.subscription.go_on()
    await settle()
    assert [text for _, text, _ in ear.heard] == ["0", "1", "2", "3", "4", "5"], "in order, each once"
    for place, _, _ in ear.heard[2:]:
        home.subscription.acknowledge(consumer, place, None)
    assert home.subscription.backlog == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_acknowledged_is_not_sent_to_the_next_consumer(kind: str) -> None:
    home = await house(kind)
    consumer, ear = home.join()
    for number in range(6):
        home.write(number, partition_key=f"k{number}")
    await settle()
    assert len(ear.heard) == 6
    for place, text, _ in ear.heard:
        if text in ("1", "3", "4"):
            home.subscription.acknowledge(consumer, place, None)
    home.subscription.remove(consumer)
    home.subscription.pause()  # it reads anew, and is not only sent what was out
    home.subscription.go_on()
    _, other = home.join()
    await settle()
    assert sorted(text for _, text, _ in other.heard) == ["0", "2", "5"]
