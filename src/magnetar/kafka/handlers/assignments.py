"""Manual replica assignments: on one broker there is only one that is right."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.wire.kafka.errors import ErrorCode


class Refused(Exception):
    """A part of a request that gets an error of its own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_assignment(broker_ids: Sequence[int], node_id: int) -> None:
    """Raise `Refused` unless the replicas are exactly this broker."""
    wrong = _wrong(list(broker_ids), node_id)
    if wrong is not None:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {wrong}"
        )


def _wrong(broker_ids: list[int], node_id: int) -> str | None:
    if not broker_ids:
        return "an empty replica list."
    for broker_id in broker_ids:
        if broker_id != node_id:
            return f"broker {broker_id}, but no such broker is registered."
    return f"the broker {node_id} more than once." if len(broker_ids) > 1 else None
