"""Acknowledgements cost what the entries they name hold, whatever a client writes into them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.formats.ack_sets import set_of, words_of
from magnetar.ledger.formats.cursor_info import CursorInfo, decode_cursor, encode_cursor
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch import acknowledgements
from magnetar.pulsar.dispatch.base import AnySubscription
from magnetar.pulsar.handlers import acks
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandAck
from tests.pulsar.raw import entry
from tests.pulsar.test_dispatch import House, house, settle

WORD = (1 << 64) - 1
MANY_WORDS = 200_000


class Words(list[int]):
    """Words that count how many of them somebody took."""

    taken = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.taken += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        self.taken += len(self)
        return super().__iter__()


@given(st.integers(0, 2**300), st.integers(0, 300))
def test_a_set_of_batch_indexes_is_the_same_in_words(remaining: int, messages: int) -> None:
    words = words_of(remaining)
    assert words == tuple(
        remaining >> 64 * at & WORD for at in range(max(-(-remaining.bit_length() // 64), 1))
    )
    signed = [word - (1 << 64) if word >> 63 else word for word in words]
    assert set_of(words, messages) == set_of(signed, messages) == remaining & ((1 << messages) - 1)


def test_no_more_words_are_looked_at_than_an_entry_has_messages() -> None:
    words = Words([-1] * 1000)
    assert set_of(words, 100) == (1 << 100) - 1
    assert words.taken == 2


def test_long_sets_are_stored_and_loaded_and_absurd_ones_let_the_entry_come_again_whole() -> None:
    long = (1 << (64 * MANY_WORDS)) - 1
    info = CursorInfo(Position(5, 1), partly=((Position(5, 2), long),))
    assert decode_cursor(encode_cursor(info)) == info
    absurd = CursorInfo(Position(5, 1), partly=((Position(5, 2), 1 << (64 * 300_000)), (Position(5, 3), 2)))
    assert decode_cursor(encode_cursor(absurd)).partly == ((Position(5, 3), 2),)


async def batches(kind: str = "shared", *sizes: int) -> tuple[House, Any, list[Position]]:
    home = await house(kind)
    placed = [
        home.log.append((entry(b"x", num_messages_in_batch=size),), messages=size, timestamp_ms=1)
        for size in sizes
    ]
    places = [await each.settled() for each in placed]
    consumer, _ = home.join(10**6)
    return home, consumer, places


class Caller:
    """As much of a connection as ACK needs, with one consumer."""

    def __init__(self, home: House, consumer: Any) -> None:
        subscription: AnySubscription = home.subscription
        topic = SimpleNamespace(subscriptions={subscription.name: subscription})
        consuming = SimpleNamespace(consumer=consumer, subscription=subscription, topic=topic)
        self.consumers = {1: consuming}
        self.answers: list[BaseCommand] = []
        self.answer = self.answers.append

    def ack(self, places: list[Position], words: list[int], **options: Any) -> Any:
        command = CommandAck(consumer_id=1, ack_type=options.pop("ack_type", 0), request_id=9)
        for place in places:
            command.message_id.add(ledgerId=place.ledger_id, entryId=place.entry_id, ack_set=words)
        return acks.ack(cast(Any, self), command, memoryview(b""))


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
@pytest.mark.parametrize("delivered", [True, False])
async def test_what_is_said_of_messages_that_a_batch_does_not_have_is_not_kept(
    kind: str, delivered: bool
) -> None:
    """Also where the entry did not go out lately, and storage is asked how many messages it has."""
    home, consumer, places = await batches(kind, 10, 1, 70)
    await settle()
    if not delivered:
        home.subscription.acks._sizes.clear()
    caller = Caller(home, consumer)
    later = caller.ack([places[0], places[2]], [0b110] + [-1] * MANY_WORDS)
    assert (later is None) is delivered
    if later is not None:
        await later
    await caller.ack([places[1]], [0b110] + [-1] * MANY_WORDS)  # no batch: nobody expects a set
    assert home.subscription.acks.partly == {places[0]: 0b110, places[2]: 0b110 | ((1 << 70) - (1 << 64))}
    assert home.subscription.backlog == 2  # of the entry with one message, message 0 is done with
    assert [each.ackResponse.message for each in caller.answers] == ["", ""]


async def test_up_to_a_batch_no_more_of_it_is_kept_than_it_has() -> None:
    home, consumer, places = await batches("exclusive", 1, 10)
    await settle()
    Caller(home, consumer).ack(places[1:], [-1] * MANY_WORDS, ack_type=CommandAck.Cumulative)
    assert home.subscription.acks.partly == {places[1]: (1 << 10) - 1}
    assert home.subscription.cursor.mark_delete_position == places[0]


async def test_of_entries_that_are_not_there_nothing_is_kept() -> None:
    home, consumer, places = await batches("shared", 10)
    await settle()
    caller = Caller(home, consumer)
    for place in (Position(places[0].ledger_id, 99), Position(77, 0)):
        await caller.ack([place], [1])
    assert home.subscription.acks.partly == {}
    assert all("no entry" in each.ackResponse.message for each in caller.answers)


async def test_parts_of_very_many_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the bound comes again whole; there is room again when batches are done with."""
    home, consumer, places = await batches("shared", *[800] * 8)
    await settle()
    monkeypatch.setattr(acknowledgements, "_MAX_PARTLY_BYTES", 300)
    caller = Caller(home, consumer)
    top = [0] * 12 + [1]
    caller.ack(places[:5], top)
    assert sorted(home.subscription.acks.partly) == places[:3]
    caller.ack(places[:3], [])
    home.subscription.flush_acks()
    caller.ack(places[5:], top)
    assert sorted(home.subscription.acks.partly) == places[5:]
    monkeypatch.setattr(acknowledgements, "_MAX_PARTLY", 3)
    caller.ack(places[3:4], [1])
    assert sorted(home.subscription.acks.partly) == places[5:]


async def test_very_many_acknowledgements_let_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "_TURN_S", -1.0)
    home, consumer, places = await batches("shared", *[1] * 2000)
    await settle()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.get_running_loop().create_task(other())
    caller = Caller(home, consumer)
    await caller.ack(places, [])
    others.cancel()
    assert turns >= 2000
    assert home.subscription.backlog == 0
    assert len(caller.answers) == 1


async def test_a_subscription_that_ends_meanwhile_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "_TURN_S", -1.0)
    home, consumer, places = await batches("shared", *[1] * 2000)
    caller = Caller(home, consumer)
    later = asyncio.ensure_future(caller.ack(places, []))
    await asyncio.sleep(0)
    caller.consumers[1].topic.subscriptions.clear()
    await later
    assert home.subscription.backlog > 1900


async def test_a_cursor_holds_no_more_of_a_batch_than_it_has_after_a_restart() -> None:
    home, consumer, places = await batches("shared", 10)
    await settle()
    Caller(home, consumer).ack(places, [-2] * MANY_WORDS)
    cursors = await home.log.cursors()
    await cursors.save()
    info = await cursors.read("s")
    assert info is not None
    assert dict(info.partly) == {places[0]: (1 << 10) - 2}


async def test_large_sets_of_many_large_batches_are_gone_through_with_turns_between_them() -> None:
    """Of few bytes each, and of a hundred thousand messages: each word is looked at."""
    home, consumer, places = await batches("shared", *[100_000] * 5)
    await settle()
    caller = Caller(home, consumer)
    assert caller.ack(places, [-1] * 1563) is None
    later = caller.ack(places * 4, [-1] * 1563)
    assert later is not None
    await later
    assert [each.ackResponse.message for each in caller.answers] == ["", ""]
