"""Who gets which tasks of a Streams application."""

from __future__ import annotations

from magnetar.kafka.coordinators.streams.assignor import TaskOwner, assign
from magnetar.kafka.coordinators.streams.group import NOTHING, TaskPair

COUNTS = {"0": 4, "1": 4}
STATEFUL = frozenset("1")


def test_the_second_application_gets_its_part_of_the_tasks_that_have_state_and_of_those_that_have_none() -> (
    None
):
    alone = assign([TaskOwner("m1", "x", NOTHING)], COUNTS, STATEFUL, 1)["m1"]
    assert alone == TaskPair({"0": frozenset(range(4)), "1": frozenset(range(4))})
    both = assign([TaskOwner("m1", "x", alone), TaskOwner("m2", "y", NOTHING)], COUNTS, STATEFUL, 1)
    stays, goes = frozenset({0, 1}), frozenset({2, 3})
    assert both == {
        "m1": TaskPair({"0": stays, "1": stays}, {"1": goes}),
        "m2": TaskPair({"0": goes, "1": goes}, {"1": stays}),
    }
    owners = [TaskOwner("m1", "x", both["m1"]), TaskOwner("m2", "y", both["m2"])]
    assert assign(owners, COUNTS, STATEFUL, 1) == both, "what is even already stays where it is"
