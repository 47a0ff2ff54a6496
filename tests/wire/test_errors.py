"""Error codes: contiguous, and retriable where Kafka's exceptions are."""

from __future__ import annotations

from kafka.errors import NoError, kafka_errors

from magnetar.kafka.wire.errors import ErrorCode


def test_the_codes_leave_no_gap() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137))


def test_names_are_those_that_clients_know() -> None:
    for code, error in kafka_errors.items():
        if error is not NoError and code in set(ErrorCode):
            theirs = error.message.replace(
                "REPLICATION_ASSIGNMENT", "REPLICA_ASSIGNMENT"
            )  # their own spelling
            assert ErrorCode(code).name == theirs


def test_clients_try_again_after_what_passes() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    assert not ErrorCode.NONE.retriable
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable
