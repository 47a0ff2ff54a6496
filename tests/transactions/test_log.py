"""What a log knows of its transactions, against a list of all that was written, taken back, kept and trimmed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.logs.producers import (
    EndTransactionMarker,
    InvalidProducerEpoch,
    MarkerFenced,
    NotInTransaction,
    OutOfOrderSequence,
    ProducerStates,
)
from magnetar.records.batch import TRANSACTIONAL, BatchHeader, PlainRecord, encode_batch, read_header

PRODUCERS = st.integers(1, 2)


def batch(producer_id: int, sequence: int, epoch: int = 0, *, transactional: bool = True) -> BatchHeader:
    attributes = TRANSACTIONAL if transactional else 0
    record = PlainRecord(None, b"v", (), 1000)
    return read_header(
        encode_batch(
            [record],
            attributes=attributes,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    )


@dataclass
class Written:
    """One entry of the log: a batch, or (``committed``) a marker."""

    producer_id: int
    committed: bool | None = None


class Log(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.states = ProducerStates()
        self.log: list[Written] = []
        self.durable = self.start = 0
        self.sequences = dict.fromkeys((1, 2, 3), 0)

    @rule(producer_id=PRODUCERS)
    def writes(self, producer_id: int) -> None:
        self.states.add(batch(producer_id, self.sequences[producer_id]), len(self.log))
        self.sequences[producer_id] += 1
        self.log.append(Written(producer_id))

    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def ends(self, producer_id: int, committed: bool) -> None:
        marker = EndTransactionMarker(producer_id, 0, committed)
        if self.states.check_marker(marker):
            self.states.settled(self.durable)
            self.states.end(marker, len(self.log), 1000)
            self.log.append(Written(producer_id, committed))

    @rule(data=st.data())
    def becomes_durable(self, data: st.DataObject) -> None:
        self.durable = data.draw(st.integers(self.durable, len(self.log)))

    @rule(data=st.data())
    def is_taken_back(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(self.durable, len(self.log)))
        self.states.take_back(at)
        del self.log[at:]

    @rule(data=st.data())
    def is_trimmed(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.durable))
        self.states.transactions.forget_before(self.start)

    @precondition(lambda self: self.durable == len(self.log))
    @rule()
    def is_opened_again(self) -> None:
        self.states = ProducerStates.decode(self.states.encode())

    def _spans(self) -> tuple[dict[int, int], list[tuple[int, int, int, bool]]]:
        """Return what is open, and what has ended: producer, first offset, marker, committed."""
        opened: dict[int, int] = {}
        ended = []
        for offset, each in enumerate(self.log):
            if each.committed is None:
                opened.setdefault(each.producer_id, offset)
            elif (first := opened.pop(each.producer_id, None)) is not None:
                ended.append((each.producer_id, first, offset, each.committed))
        return opened, ended

    @invariant()
    def the_last_stable_offset_is_where_the_first_undecided_one_begins(self) -> None:
        opened, ended = self._spans()
        undecided = [*opened.values(), *(first for _, first, marker, _ in ended if marker >= self.durable)]
        wanted = max(min([self.durable, *undecided]), min(self.start, self.durable))
        assert self.states.transactions.open() == opened
        assert self.states.transactions.stable(self.durable, self.start) == wanted

    @invariant()
    def aborted_ones_are_found_wherever_one_reads(self) -> None:
        _, ended = self._spans()
        aborted = [(who, first, marker) for who, first, marker, committed in ended if not committed]
        for low in range(self.start, len(self.log)):
            for high in range(low + 1, len(self.log) + 1):
                found = {each[:3] for each in self.states.transactions.aborted_in(low, high)}
                wanted = {each for each in aborted if each[2] >= low and each[1] < high}
                assert found == wanted


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=400, stateful_step_count=25, deadline=None)


def test_zombies_and_markers_of_older_coordinators_are_refused() -> None:
    states = ProducerStates()
    states.add(batch(1, 0, epoch=5), 0)
    with pytest.raises(NotInTransaction):
        states.check(batch(1, 1, epoch=5, transactional=False))
    with pytest.raises(InvalidProducerEpoch):
        states.check_marker(EndTransactionMarker(1, 4, committed=True))
    with pytest.raises(InvalidProducerEpoch):  # of version 2 it bears the next epoch
        states.check_marker(EndTransactionMarker(1, 5, committed=True, version=2))
    bumped = EndTransactionMarker(1, 6, committed=True, coordinator_epoch=3, version=2)
    assert states.check_marker(bumped)
    states.end(bumped, 1, 1000)
    assert not states.check_marker(bumped)  # written again after a crash
    with pytest.raises(MarkerFenced):
        states.check_marker(bumped._replace(coordinator_epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        states.check(batch(1, 1, epoch=5))
    assert states.check(batch(1, 0, epoch=6)) is None


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    states = ProducerStates()
    states.add(batch(1, 0), 0)
    states.add(batch(2, 0, transactional=False), 1)
    states.expire(1 << 60)
    assert [producer_id for producer_id, _ in states.active()] == [1]


def test_a_transaction_whose_kept_batches_were_all_taken_back_is_still_open_after_a_restart() -> None:
    states = ProducerStates()
    for sequence in range(6):  # one more than is kept of a producer
        states.add(batch(1, sequence), sequence)
    states.take_back(1)
    again = ProducerStates.decode(states.encode())
    assert again.has_open(1, epoch=0)
    assert again.transactions.stable(1, 0) == 0
    with pytest.raises(OutOfOrderSequence):
        again.check(batch(1, 2))
    assert again.check(batch(1, 1)) is None
