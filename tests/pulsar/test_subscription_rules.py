"""Small promises of subscriptions: which consumers get no more, which hear of the end, and what is read again."""

from __future__ import annotations

import pytest

from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.keys import Division, divided
from magnetar.pulsar.dispatch.reading import UnackedLimits
from magnetar.pulsar.errors import ConsumerAssignError
from magnetar.pulsar.places import Places
from tests.pulsar.test_dispatch import KEY_SHARED, KINDS, Ear, house, settle


class Told(Ear):
    """Keeps which consumers heard that nothing more will come."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[int] = []

    def reached_end(self, consumer_id: int) -> None:
        self.ended.append(consumer_id)


@pytest.mark.parametrize(("kind", "is_held"), [("exclusive", False), ("shared", True), ("key_shared", True)])
async def test_a_consumer_is_held_back_where_messages_are_counted_and_once_it_has_too_many(
    kind: str, is_held: bool
) -> None:
    home = await house(kind, limits=UnackedLimits(2, 0))
    consumer, ear = home.join(100)
    assert not home.subscription.holds_back(consumer)
    for number in range(3):
        home.write(number)
    await settle()
    assert home.subscription.holds_back(consumer) is is_held
    assert len(ear.heard) == (2 if is_held else 3)
    home.subscription.acknowledge(consumer, ear.heard[0][0], None)
    home.subscription.acknowledge(consumer, ear.heard[1][0], None)
    assert not home.subscription.holds_back(consumer)
    home.subscription.close()


@pytest.mark.parametrize("division", [Division.RING, Division.HALVES])
def test_where_hashes_are_divided_no_consumer_brings_ranges_of_its_own(division: Division) -> None:
    keys = divided(division)
    keys.check(Consumer(Ear(), 1, "c", -1))
    with pytest.raises(ConsumerAssignError, match="The subscription is of mode AUTO_SPLIT"):
        keys.check(Consumer(Ear(), 2, "sticky", -1, hash_ranges=((0, 100),)))


@pytest.mark.parametrize("kind", KINDS)
async def test_each_consumer_is_told_once_that_nothing_more_will_come(kind: str) -> None:
    home = await house(kind)
    await home.write(0).settled()
    consumers = []
    for number in range(2):
        ear = Told()
        consumers.append((Consumer(ear, number, f"c{number}", -1), ear))
        home.subscription.add(consumers[-1][0])
        home.subscription.flow(consumers[-1][0], 10)
    await settle()
    await home.log.terminate()
    home.subscription.tell_end()
    assert [ear.ended for _, ear in consumers] == [[], []], "there is something yet to acknowledge"
    ((owner, place),) = [(consumer, ear.heard[0][0]) for consumer, ear in consumers if ear.heard]
    for _ in range(2):
        home.subscription.acknowledge(owner, place, None)
        home.subscription.tell_end()
    assert [ear.ended for _, ear in consumers] == [[0], [1]]
    assert all(consumer.knows_end for consumer, _ in consumers)
    home.subscription.close()


@pytest.mark.parametrize("kind", ["shared", *KEY_SHARED])
async def test_who_is_sent_everything_again_holds_no_more_than_that(kind: str) -> None:
    home = await house(kind, limits=UnackedLimits(4, 0))
    consumer, ear = home.join(100)
    for number in range(3):
        home.write(number)
    await settle()
    assert (consumer.unacked, len(consumer.pending)) == (3, 3)
    home.subscription.pause()
    assert (consumer.unacked, len(consumer.pending)) == (0, 0)
    home.subscription.go_on()
    await settle()
    assert [text for _, text, _ in ear.heard] == ["0", "1", "2"] * 2
    assert (consumer.unacked, len(consumer.pending)) == (3, 3)
    home.subscription.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_where_to_read_on_is_looked_up_once_however_often_a_subscription_at_the_end_is_woken(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = await house(kind)
    looked, start_offset = [0], home.subscription.cursor.start_offset

    async def counted() -> int:
        looked[0] += 1
        return await start_offset()

    monkeypatch.setattr(home.subscription.cursor, "start_offset", counted)
    consumer, ear = home.join(1)
    for _ in range(20):
        home.subscription.flow(consumer, 1)
        await settle()
    home.write(0)
    await settle()
    assert (len(ear.heard), looked) == (1, [1])
    home.subscription.close()


@pytest.mark.parametrize("written", [1, 3, 50, 51, 75])
async def test_the_last_place_stays_where_it_was_though_all_was_trimmed(written: int) -> None:
    """A client that seeks to the end gets behind what there was, not to the beginning of the ledger."""
    home = await house("shared")
    places = Places(home.log)
    for number in range(written):
        await home.write(number).settled()
    ledger = home.log.ledgers()[-1]
    last = Position(ledger.ledger_id, ledger.entries - 1)
    assert await places.last() == last
    await home.log.trim(written)
    assert home.log.log_start_offset == home.log.log_end_offset == written
    assert await places.last() == last
    assert await places.end() == Position(last.ledger_id, last.entry_id + 1)
    home.subscription.close()
