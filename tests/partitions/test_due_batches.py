"""What is due of a producer in a partition stays due when its log is opened anew, and only for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.kafka.partitions import due_batches
from magnetar.kafka.partitions.due_batches import DueBatches
from magnetar.logs.producers import OutOfOrderSequence, ProducerStates
from magnetar.records.batch import BatchHeader, PlainRecord, encode_batch, read_header

TOPIC = b"t" * 16


def header(sequence: int, producer_id: int = 7, count: int = 1) -> BatchHeader:
    records = [PlainRecord(None, b"v", (), 5)] * count
    return read_header(
        encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    )


def partition(states: ProducerStates | None = None, *, in_flight: bool = False) -> Any:
    return SimpleNamespace(
        topic=SimpleNamespace(topic_id=TOPIC),
        index=0,
        log=SimpleNamespace(high_watermark=0, log_end_offset=int(in_flight)),
        producers=ProducerStates() if states is None else states,
    )


def reopened(due: DueBatches) -> ProducerStates:
    made = partition()
    due.opened(made)
    states: ProducerStates = made.producers
    return states


def test_what_is_taken_back_after_the_partition_closed_is_due_when_it_is_open_again() -> None:
    due, states = DueBatches(), ProducerStates()
    states.add(header(0), 0)
    due.closed(partition(states, in_flight=True))
    states.take_back(0)
    again = reopened(due)
    with pytest.raises(OutOfOrderSequence):
        again.check(header(1))
    assert again.check(header(0)) is None
    assert reopened(due).check(header(1)) is None, "it was told once"


def test_what_the_log_has_goes_before_what_was_due() -> None:
    due, states = DueBatches(), ProducerStates()
    states.add(header(0), 0)
    due.closed(partition(states, in_flight=True))
    states.take_back(0)  # and yet it was kept
    made = partition()
    made.producers.add(header(0), 0)
    due.opened(made)
    assert made.producers.check(header(1)) is None


def test_what_is_refused_while_a_partition_is_closed_is_due_first() -> None:
    due = DueBatches()
    due.refused(TOPIC, 0, header(3))
    due.refused(TOPIC, 0, header(4))
    due.refused(TOPIC, 0, header(9, producer_id=-1))
    due.refused(TOPIC, 1, header(0))
    again = reopened(due)
    for sequence in (0, 4):
        with pytest.raises(OutOfOrderSequence):
            again.check(header(sequence))
    assert again.check(header(3)) is None
    assert len(again) == 1


def test_the_first_refusal_counts_though_the_partition_closes_again() -> None:
    due = DueBatches()
    due.refused(TOPIC, 0, header(3))
    states = reopened(due)
    due.closed(partition(states))
    due.refused(TOPIC, 0, header(4))
    assert reopened(due).check(header(3)) is None


def test_it_is_forgotten_after_a_while_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    due = DueBatches()
    due.refused(TOPIC, 0, header(3))
    due.forget()
    due.refused(TOPIC, 0, header(4))  # older knowledge counts
    assert reopened(due).check(header(3)) is None
    due.refused(TOPIC, 0, header(3))
    due.forget()
    due.forget()
    assert reopened(due).check(header(9)) is None
    monkeypatch.setattr(due_batches, "_MAX_REFUSED", 2)
    for producer_id in range(4):
        due.refused(TOPIC, 0, header(3, producer_id=producer_id))
    assert len(reopened(due)) == 2
