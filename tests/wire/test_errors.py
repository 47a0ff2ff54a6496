"""Error codes: contiguous, and retriable where Kafka's exceptions are."""

from __future__ import annotations

from kafka.errors import kafka_errors

from magnetar.wire.kafka.errors import ErrorCode


def test_the_codes_leave_no_gap() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137))


#: where kafka-python has names of its own, and where it thinks otherwise of trying again
OWN_NAMES = {-1, 0, 6, 10, 17, 39}
OWN_MIND = {ErrorCode.CORRUPT_MESSAGE}
KNOWN = {ErrorCode(code): error for code, error in kafka_errors.items() if code is not None}


def test_names_are_those_that_clients_know() -> None:
    assert {code for code, error in KNOWN.items() if code.name != error.message} == OWN_NAMES


def test_clients_agree_on_what_is_tried_again() -> None:
    assert {code for code, error in KNOWN.items() if code.retriable != error.retriable} == OWN_MIND


def test_clients_try_again_after_what_passes() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
