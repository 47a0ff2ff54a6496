"""Manual replica assignments: a partition is served by one broker, and storage keeps the copies."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.ownership import Ownership
from magnetar.wire.kafka.errors import ErrorCode


class PartRefused(Exception):
    """A part of a request that gets an error of its own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_assignment(broker_ids: Sequence[int], ownership: Ownership) -> None:
    """Raise `PartRefused` unless the replicas are exactly one broker that lives."""
    wrong = _wrong(list(broker_ids), {each.node_id for each in ownership.brokers()})
    if wrong is not None:
        raise PartRefused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {wrong}"
        )


def _wrong(broker_ids: list[int], registered: set[int]) -> str | None:
    if not broker_ids:
        return "an empty replica list."
    for broker_id in broker_ids:
        if broker_id not in registered:
            return f"broker {broker_id}, but no such broker is registered."
    if len(broker_ids) == 1:
        return None
    if len(set(broker_ids)) < len(broker_ids):
        return f"the broker {broker_ids[0]} more than once."
    return f"{len(broker_ids)} brokers, but a partition has one: its storage keeps the copies."
