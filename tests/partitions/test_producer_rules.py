"""What a partition remembers of a producer, rule by rule; ``test_producer_states`` puts them together at random."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from magnetar.logs.producers import InvalidProducerEpoch, OutOfOrderSequence, ProducerStates
from magnetar.records.batch import BatchHeader, PlainRecord, encode_batch, read_header

MOST = (1 << 31) - 1


def batch(first: int, count: int = 1, epoch: int = 0, at_ms: int = 1000) -> BatchHeader:
    records = [PlainRecord(None, b"v", (), at_ms)] * count
    return read_header(encode_batch(records, producer_id=7, producer_epoch=epoch, base_sequence=first))


def wrote(batches: Iterable[BatchHeader]) -> ProducerStates:
    """Return the states after these batches, at offsets 100, 200 and so on."""
    states = ProducerStates()
    for number, each in enumerate(batches, 1):
        assert states.check(each) is None
        states.add(each, 100 * number)
    return states


@pytest.mark.parametrize("through_a_snapshot", [False, True])
def test_the_last_five_batches_are_known_again_and_no_older_one(through_a_snapshot: bool) -> None:
    sent = [batch(first, 2) for first in range(0, 14, 2)]
    states = wrote(sent)
    if through_a_snapshot:
        states = ProducerStates.decode(states.encode())
    for number, each in enumerate(sent, 1):
        if number > 2:
            kept = states.check(each)
            assert kept is not None
            assert kept.base_offset == 100 * number
        else:
            with pytest.raises(OutOfOrderSequence):
                states.check(each)
    assert states.check(batch(14)) is None


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_of_another_length_is_no_repetition(count: int) -> None:
    with pytest.raises(OutOfOrderSequence):
        wrote([batch(0, 2)]).check(batch(0, count))


@pytest.mark.parametrize(
    ("before", "following"),
    [(batch(MOST), 0), (batch(MOST - 1, 2), 0), (batch(MOST - 1, 4), 2), (batch(MOST - 1), MOST)],
)
def test_sequences_go_on_with_zero_after_the_last(before: BatchHeader, following: int) -> None:
    states = wrote([before])
    assert states.check(batch(following)) is None
    for other in {0, 1, 2, 3, MOST} - {following, before.base_sequence}:
        with pytest.raises(OutOfOrderSequence):
            states.check(batch(other))
    kept = states.check(before)
    assert kept is not None
    assert kept.base_offset == 100


def test_a_new_epoch_begins_with_zero_and_fences_the_old_one() -> None:
    states = wrote([batch(5), batch(6)])
    with pytest.raises(OutOfOrderSequence, match="a new epoch begins"):
        states.check(batch(7, epoch=1))
    assert states.check(batch(0, epoch=1)) is None
    states.add(batch(0, epoch=1), 300)
    with pytest.raises(InvalidProducerEpoch):
        states.check(batch(7))
    with pytest.raises(InvalidProducerEpoch):
        states.check(batch(6))  # also what was stored: nobody may think that it still writes
    with pytest.raises(OutOfOrderSequence):
        states.check(batch(5, epoch=1))


def test_who_is_not_known_begins_anywhere() -> None:
    assert ProducerStates().check(batch(77)) is None


def test_a_producer_is_forgotten_when_its_last_batch_is_as_old_as_that() -> None:
    states = wrote([batch(0, at_ms=1000), batch(1, at_ms=2000)])
    states.expire(1999)
    with pytest.raises(OutOfOrderSequence):
        states.check(batch(9))
    states.expire(2000)
    assert len(states) == 0
    assert states.check(batch(9)) is None


def test_what_storage_took_back_is_due_again() -> None:
    states = wrote([batch(0), batch(1), batch(2)])
    states.take_back(200)
    with pytest.raises(OutOfOrderSequence):
        states.check(batch(3))
    with pytest.raises(OutOfOrderSequence):
        states.check(batch(2))
    assert states.check(batch(1)) is None
    states.take_back(0)
    assert states.check(batch(0)) is None
    assert list(states.active()) == []


def test_behind_a_first_batch_that_storage_refused_nothing_goes_in() -> None:
    states = ProducerStates()
    states.not_kept(batch(40))
    with pytest.raises(OutOfOrderSequence):
        states.check(batch(41))
    assert states.check(batch(40)) is None
    states.not_kept(batch(50))  # only of whom nothing else is known
    assert states.check(batch(40)) is None
    states.expire(0)
    assert states.check(batch(41)) is None
