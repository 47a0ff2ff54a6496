"""How many replicas a new topic may be asked for, and on which brokers (decision 165)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.kafka.handlers.assignments import (
    PartRefused,
    check_assignment,
    check_reassignment,
    check_replication_factor,
)
from magnetar.wire.kafka.errors import ErrorCode as E


def brokers(*node_ids: int) -> Any:
    return SimpleNamespace(brokers=lambda: [SimpleNamespace(node_id=each) for each in node_ids])


@contextmanager
def refused(code: E, message: str) -> Iterator[None]:
    """What is done is refused with a message; with none it is not."""
    if not message:
        yield
        return
    with pytest.raises(PartRefused, match=message) as found:
        yield
    assert found.value.code is code


@pytest.mark.parametrize(
    ("factor", "there", "message"),
    [
        (1, (0,), ""),
        (3, (4, 5, 6), ""),
        (2, (4, 5, 6), ""),
        (0, (4, 5, 6), "larger than 0"),
        (-2, (4, 5, 6), "larger than 0"),
        (4, (4, 5, 6), "only 3 broker"),
        (2, (0,), "only 1 broker"),
    ],
)
def test_there_are_as_many_replicas_as_there_are_brokers(
    factor: int, there: tuple[int, ...], message: str
) -> None:
    with refused(E.INVALID_REPLICATION_FACTOR, message):
        check_replication_factor(factor, brokers(*there))


@pytest.mark.parametrize(
    ("replicas", "new", "moved"),
    [
        ([5], "", ""),
        ([4, 6, 5], "", "3 brokers, but a partition has one"),
        ([4, 7], "broker 7, but no such broker is registered", "broker 7, but no such broker is registered"),
        ([4, 5, 4], "the broker 4 more than once", "the broker 4 more than once"),
        ([], "an empty replica list", "an empty replica list"),
    ],
)
def test_a_new_partition_may_be_on_several_brokers_but_none_is_moved_there(
    replicas: list[int], new: str, moved: str
) -> None:
    for check, wanted in ((check_assignment, new), (check_reassignment, moved)):
        with refused(E.INVALID_REPLICA_ASSIGNMENT, wanted):
            check(replicas, brokers(4, 5, 6))
