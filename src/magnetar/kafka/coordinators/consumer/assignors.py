"""Which member should have which partitions. Pure functions, made for thousands of members and partitions.

``range``    each topic on its own: adjacent partitions to members in the order of their ids, so that topics of
             one size are joined by number
``uniform``  as even as subscriptions allow, and no member loses a partition without need
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from magnetar.kafka.coordinators.consumer.group import Assignment


class Subscriber(NamedTuple):
    """One member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    """The ids of the existing topics that it reads."""
    target: Assignment
    """Its previous target."""


_MAX_LOOKS = 2_000_000
Sizes = Mapping[bytes, int]
"""Number of partitions by topic id."""
Targets = dict[str, dict[bytes, frozenset[int]]]
Assignor = Callable[[Sequence[Subscriber], Sizes], Targets]


def assign_range(subscribers: Sequence[Subscriber], sizes: Sizes) -> Targets:
    """Assign each topic's partitions in runs, the first members getting one more where it does not divide."""
    targets: Targets = {each.member_id: {} for each in subscribers}
    ordered = sorted(subscribers, key=_place)
    readers: dict[bytes, list[Subscriber]] = {}
    for each in ordered:
        for topic_id in each.topics:
            readers.setdefault(topic_id, []).append(each)
    for topic_id, reading in readers.items():
        share, more = divmod(sizes[topic_id], len(reading))
        start = 0
        for index, each in enumerate(reading):
            end = start + share + (index < more)
            if end > start:
                targets[each.member_id][topic_id] = frozenset(range(start, end))
            start = end
    return targets


def _place(each: Subscriber) -> tuple[bool, str]:
    return (each.instance_id is None, each.member_id if each.instance_id is None else each.instance_id)


def assign_uniform(subscribers: Sequence[Subscriber], sizes: Sizes) -> Targets:
    """Assign as evenly as subscriptions allow; members retain their partitions, as far as that is even."""
    if not subscribers:
        return {}
    alike = all(each.topics == subscribers[0].topics for each in subscribers)
    readers = _readers(subscribers)
    share, more = divmod(sum(sizes[topic_id] for topic_id in readers), len(subscribers))
    shares = _Shares()
    for each in sorted(subscribers, key=_place):
        most = share + (more > 0) if alike else None
        more -= shares.keep(each, sizes, most) > share
    # Topics of few readers first: members that also read others can get those.
    for topic_id in sorted(readers, key=lambda each: (len(readers[each]), each)):
        shares.give(topic_id, sizes[topic_id], readers[topic_id])
    if not alike:
        shares.even_out(readers)
    return shares.targets()


class _Shares:
    """The assignment while it is being computed."""

    def __init__(self) -> None:
        self._held: dict[str, dict[bytes, list[int]]] = {}
        self._loads: dict[str, int] = {}
        self._taken: dict[bytes, set[int]] = {}

    def keep(self, each: Subscriber, sizes: Sizes, most: int | None) -> int:
        """Retain a member's previous target, unless another member has it; return how much that is."""
        held: dict[bytes, list[int]] = {}
        load = 0
        for topic_id, partitions in each.target.items():
            if topic_id not in each.topics:
                continue
            taken = self._taken.setdefault(topic_id, set())
            keeps = [index for index in sorted(partitions - taken) if index < sizes[topic_id]]
            if most is not None:
                keeps = keeps[: most - load]
            if keeps:
                held[topic_id] = keeps
                taken.update(keeps)
                load += len(keeps)
        self._held[each.member_id], self._loads[each.member_id] = held, load
        return load

    def give(self, topic_id: bytes, size: int, reading: Sequence[str]) -> None:
        """Assign each free partition of a topic to the reader that has the least."""
        taken = self._taken.get(topic_id, set())
        loads = [(self._loads[member_id], member_id) for member_id in reading]
        heapq.heapify(loads)
        for index in range(size):
            if index not in taken:
                load, member_id = loads[0]
                heapq.heapreplace(loads, (load + 1, member_id))
                self._take(member_id, topic_id, index)

    def _take(self, member_id: str, topic_id: bytes, index: int) -> None:
        self._held[member_id].setdefault(topic_id, []).append(index)
        self._loads[member_id] += 1

    def even_out(self, readers: Mapping[bytes, Sequence[str]]) -> None:
        """Move partitions from a reader that has two more than another of the same topic, while there is such a pair.

        For very large groups, the number of attempts is bounded: the next assignment continues.
        """
        looks = _MAX_LOOKS
        moved = True
        while moved and looks > 0:
            moved = False
            for topic_id, reading in sorted(readers.items()):
                while looks > 0 and self._move(topic_id, reading):
                    moved = True
                    looks -= len(reading)
                looks -= len(reading)

    def _move(self, topic_id: bytes, reading: Sequence[str]) -> bool:
        owners = [each for each in reading if self._held[each].get(topic_id)]
        if not owners:
            return False
        least = min(reading, key=lambda each: (self._loads[each], each))
        most = max(owners, key=lambda each: (self._loads[each], each))
        if self._loads[most] - self._loads[least] < 2:
            return False
        # The one that it got last: it retains what it has had longest.
        self._take(least, topic_id, self._held[most][topic_id].pop())
        self._loads[most] -= 1
        return True

    def targets(self) -> Targets:
        """Return the partitions of each member."""
        return {
            member_id: {topic_id: frozenset(indexes) for topic_id, indexes in held.items() if indexes}
            for member_id, held in self._held.items()
        }


def _readers(subscribers: Iterable[Subscriber]) -> dict[bytes, list[str]]:
    readers: dict[bytes, list[str]] = {}
    for each in subscribers:
        for topic_id in each.topics:
            readers.setdefault(topic_id, []).append(each.member_id)
    return readers


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors of ``group.consumer.assignors``; the first one is the default."""
