"""Replicas that clients ask for: a partition is served by one broker, and storage keeps the copies (decision 165)."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.cluster.ownership import Ownership
from magnetar.wire.kafka.errors import ErrorCode


class PartRefused(Exception):
    """A part of a request that gets an error of its own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_assignment(broker_ids: Sequence[int], ownership: Ownership) -> None:
    """Raise `PartRefused` unless the replicas of a new partition are different brokers that live.

    One of them, or another broker, serves it: whoever has its bundle.
    """
    wrong = _wrong(list(broker_ids), {each.node_id for each in ownership.brokers()})
    if wrong is not None:
        raise PartRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {wrong}"
        )


def check_reassignment(broker_ids: Sequence[int], ownership: Ownership) -> None:
    """Raise `PartRefused` unless the replicas that a partition is to have are exactly one broker that lives."""
    check_assignment(broker_ids, ownership)
    if len(broker_ids) > 1:
        raise PartRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {len(broker_ids)} brokers, but a partition has one: "
            f"its storage keeps the copies.",
        )


def check_replication_factor(factor: int, ownership: Ownership) -> None:
    """Raise `PartRefused` unless there are as many brokers as a new topic is to have replicas."""
    brokers = len(ownership.brokers())
    if factor <= 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
    elif factor > brokers:
        message = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            f"cannot be reached because only {brokers} broker(s) are registered."
        )
    else:
        return
    raise PartRefused(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _wrong(broker_ids: list[int], registered: set[int]) -> str | None:
    if not broker_ids:
        return "an empty replica list."
    for broker_id in broker_ids:
        if broker_id not in registered:
            return f"broker {broker_id}, but no such broker is registered."
    if len(set(broker_ids)) < len(broker_ids):
        return f"the broker {broker_ids[0]} more than once."
    return None
