"""What open transactions have set aside of a subscription, message by message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.coordination.transactions import Ack, TxnId
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.pending_acks import PendingAcks
from magnetar.pulsar.errors import NotAllowed, PulsarError, TransactionConflict
from tests.pulsar.test_dispatch import house, settle

ONE, OTHER = TxnId(0, 1), TxnId(0, 2)
PLACE = (1, 5)


def ack(place: tuple[int, int], remaining: int | None = None, *, cumulative: bool = False) -> Ack:
    """Return the acknowledgement of an entry of three messages, of which ``remaining`` are not acknowledged."""
    return Ack(*place, messages=3, remaining=remaining, cumulative=cumulative)


def test_what_several_transactions_have_of_a_batch_is_not_sent() -> None:
    acks = PendingAcks("here")
    assert acks.without(PLACE, 3, None) is None
    assert acks.without(PLACE, 3, 0b101) == 0b101
    acks.put(ONE, ack(PLACE, 0b110))
    acks.put(OTHER, ack(PLACE, 0b101))
    assert acks.without(PLACE, 3, None) == 0b100
    assert acks.without(PLACE, 3, 0b011) == 0
    assert not acks.covers(PLACE, 3, None)
    assert acks.covers(PLACE, 3, 0b011)
    acks.drop(ONE, [ack(PLACE, 0b110)])
    assert acks.without(PLACE, 3, None) == 0b101
    acks.drop(OTHER, [ack(PLACE, 0b101)])
    assert acks.without(PLACE, 3, None) is None
    assert len(acks) == 0


def test_a_whole_entry_that_is_set_aside_is_not_sent() -> None:
    acks = PendingAcks("here")
    acks.put(ONE, ack(PLACE))
    assert acks.without(PLACE, 3, None) == 0
    assert acks.without((1, 4), 3, None) is None
    assert acks.without((1, 6), 3, None) is None


@pytest.mark.parametrize(
    ("place", "left"), [((1, 4), 0), ((0, 9), 0), (PLACE, 0b100), ((1, 6), None), ((2, 0), None)]
)
def test_up_to_where_a_transaction_acknowledged_all_nothing_is_sent(
    place: tuple[int, int], left: int | None
) -> None:
    acks = PendingAcks("here")
    acks.put(ONE, ack(PLACE, 0b100, cumulative=True))
    assert acks.without(place, 3, None) == left
    assert acks.state_of(place) == ("NotInPendingAck" if left is None else "PendingAck")
    acks.drop(OTHER, [ack(PLACE, 0b100, cumulative=True)])
    assert acks.without(place, 3, None) == left, "another's"
    acks.drop(ONE, [ack(PLACE, 0b100, cumulative=True)])
    assert acks.without(place, 3, None) is None


def cursor(*done: tuple[int, int], partly: int | None = None) -> Any:
    """Return a cursor that is done with all before (1, 5) and with ``done``; of (1, 5) ``partly`` remains."""
    done_with = {Position(*each) for each in done}
    return SimpleNamespace(
        mark_delete_position=Position(1, 4),
        is_done_with=lambda place: place <= Position(1, 4) or place in done_with,
        partly={} if partly is None else {PLACE: partly},
    )


@pytest.mark.parametrize(
    ("place", "remaining", "partly", "what"),
    [
        ((1, 4), None, None, "message:1:4 already acked before"),
        ((1, 7), None, None, "message:1:7 already acked before"),
        ((1, 8), None, None, ""),
        (PLACE, 0b011, 0b011, "batch message:1:5 already acked before"),
        (PLACE, 0b010, 0b011, "batch message:1:5 already acked before"),
        (PLACE, 0b110, 0b011, ""),
        (PLACE, 0b100, 0b111, ""),
        (PLACE, None, 0b011, ""),
        ((1, 6), 0b011, 0b011, ""),
    ],
)
def test_what_is_done_with_no_transaction_acknowledges(
    place: tuple[int, int], remaining: int | None, partly: int | None, what: str
) -> None:
    acks = PendingAcks("here")
    asked = [ack((1, 9)), ack(place, remaining)]
    if not what:
        acks.take(ONE, asked, cursor((1, 7), partly=partly))
        assert list(acks.entries()) == [(1, 9), place]
        return
    with pytest.raises(TransactionConflict, match=what) as refused:
        acks.take(ONE, asked, cursor((1, 7), partly=partly))
    assert "[here] Transaction:" in str(refused.value)
    assert len(acks) == 0, "nothing has changed"


@pytest.mark.parametrize("txn", [ONE, OTHER])
@pytest.mark.parametrize(
    ("held", "asked", "is_taken"),
    [
        (None, None, False),
        (0b110, None, False),
        (None, 0b110, False),
        (0b110, 0b110, False),
        (0b110, 0b101, True),
    ],
)
def test_what_is_set_aside_is_not_set_aside_again(
    txn: TxnId, held: int | None, asked: int | None, is_taken: bool
) -> None:
    acks = PendingAcks("here")
    acks.put(ONE, ack(PLACE, held))
    if is_taken:
        acks.take(txn, [ack(PLACE, asked)], cursor())
        assert acks.without(PLACE, 3, None) == 0b100
        return
    with pytest.raises(TransactionConflict, match="message:1:5 in pending ack status"):
        acks.take(txn, [ack(PLACE, asked)], cursor())
    assert acks.without(PLACE, 3, None) == (0 if held is None else held)


@pytest.mark.parametrize("place", [(0, 9), (1, 3), (1, 4)])
def test_up_to_what_is_done_with_no_transaction_acknowledges(place: tuple[int, int]) -> None:
    acks = PendingAcks("here")
    with pytest.raises(
        TransactionConflict, match=f"position: {place[0]}:{place[1]} within range of cursor's"
    ):
        acks.take(ONE, [ack(place, cumulative=True)], cursor())
    assert acks.cumulative is None
    acks.take(ONE, [ack(PLACE, cumulative=True)], cursor())
    assert acks.cumulative == (ONE, ack(PLACE, cumulative=True))


@pytest.mark.parametrize(
    ("before", "place", "remaining", "is_further"),
    [
        (None, (1, 7), None, True),
        (None, (2, 0), None, True),
        (None, (1, 6), None, False),
        (None, (1, 6), 0b100, False),
        (None, (1, 5), None, False),
        (0b110, (1, 6), 0b100, True),
        (0b110, (1, 6), None, True),
        (0b110, (1, 6), 0b110, False),
        (0b100, (1, 6), 0b110, False),
        (0b110, (1, 5), None, False),
    ],
)
def test_one_transaction_alone_acknowledges_all_up_to_a_place_and_goes_further_only(
    before: int | None, place: tuple[int, int], remaining: int | None, is_further: bool
) -> None:
    acks = PendingAcks("here")
    first, asked = ack((1, 6), before, cumulative=True), ack(place, remaining, cumulative=True)
    acks.take(ONE, [first], cursor())
    with pytest.raises(TransactionConflict, match="current currentPosition: 1:6"):
        acks.take(OTHER, [asked], cursor())
    assert acks.cumulative == (ONE, first)
    if is_further:
        acks.take(ONE, [asked], cursor())
        assert acks.cumulative == (ONE, asked)
    else:
        with pytest.raises(TransactionConflict, match="current currentPosition: 1:6"):
            acks.take(ONE, [asked], cursor())
        assert acks.cumulative == (ONE, first)


async def test_a_subscription_sets_aside_what_is_there_and_not_acknowledged_yet() -> None:
    home = await house("shared")
    for number in range(5):
        home.write(number)
    consumer, ear = home.join()
    await settle()
    places = [each[0] for each in ear.heard]
    subscription, aside = home.subscription, PendingAcks("here")
    with pytest.raises(NotAllowed, match="subscription s takes no acknowledgements of transactions"):
        subscription.set_aside(consumer, ONE, [Ack(*places[0])])
    subscription.acks.in_transactions = aside
    with pytest.raises(PulsarError, match="has no entry"):
        subscription.set_aside(consumer, ONE, [Ack(*places[0]), Ack(places[0][0], 99)])
    assert len(aside) == consumer.acknowledged == 0
    subscription.acknowledge(consumer, places[1], None)
    with pytest.raises(TransactionConflict, match="already acked before"):
        subscription.set_aside(consumer, ONE, [Ack(*places[1])])
    before = consumer.acknowledged
    subscription.set_aside(consumer, ONE, [Ack(*places[0]), Ack(*places[2])])
    assert list(aside.entries()) == [places[0], places[2]]
    assert consumer.acknowledged == before + 2
    assert list(consumer.pending) == places[3:]
    with pytest.raises(TransactionConflict, match="in pending ack status"):
        subscription.set_aside(consumer, OTHER, [Ack(*places[2])])
    subscription.cursor.is_durable = False
    with pytest.raises(NotAllowed, match="takes no acknowledgements of transactions"):
        subscription.set_aside(consumer, ONE, [Ack(*places[3])])
    subscription.close()
