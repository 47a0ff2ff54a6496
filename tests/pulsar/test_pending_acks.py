"""What open transactions have set aside of a subscription, message by message."""

from __future__ import annotations

import pytest

from magnetar.coordination.transactions import Ack, TxnId
from magnetar.pulsar.dispatch.pending_acks import PendingAcks

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
