"""Which member of a share group fetches from which partitions (the ``simple`` assignor). A pure function.

Each partition has a member, each member has a partition: with more members than partitions several members share one.
Members retain what they have as far as that is even.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from magnetar.kafka.coordinators.share.group import Assignment

Sizes = Mapping[bytes, int]
"""Number of partitions by topic id."""
Targets = dict[str, dict[bytes, frozenset[int]]]


class ShareSubscriber(NamedTuple):
    """One member as the assignor sees it."""

    member_id: str
    topics: frozenset[bytes]
    """The ids of the existing topics that it reads."""
    target: Assignment
    """Its previous target."""


def assign_simple(subscribers: Sequence[ShareSubscriber], sizes: Sizes) -> Targets:
    """Return the partitions that each member should have."""
    readers: dict[bytes, list[str]] = {}
    for each in subscribers:
        for topic_id in each.topics:
            readers.setdefault(topic_id, []).append(each.member_id)
    partitions = sum(sizes[topic_id] for topic_id in readers)
    if not partitions:
        return {each.member_id: {} for each in subscribers}
    most = -(-partitions // len(subscribers))
    shared_by = -(-len(subscribers) // partitions)
    given: dict[str, dict[bytes, set[int]]] = {}
    loads: dict[str, int] = {}
    sharers: dict[bytes, dict[int, int]] = {topic_id: {} for topic_id in readers}
    for each in subscribers:
        kept = given[each.member_id] = _kept(each, sizes, sharers, most, shared_by)
        loads[each.member_id] = sum(map(len, kept.values()))

    def give(member_id: str, topic_id: bytes, index: int) -> None:
        given[member_id].setdefault(topic_id, set()).add(index)
        loads[member_id] += 1
        sharers[topic_id][index] = sharers[topic_id].get(index, 0) + 1

    for topic_id in sorted(readers, key=lambda each: (len(readers[each]), each)):
        heap = [(loads[member_id], member_id) for member_id in readers[topic_id]]
        heapq.heapify(heap)
        for index in range(sizes[topic_id]):
            if index not in sharers[topic_id]:
                load, member_id = heap[0]
                heapq.heapreplace(heap, (load + 1, member_id))
                give(member_id, topic_id, index)
    crowds = {
        topic_id: [(by_index.get(index, 0), index) for index in range(sizes[topic_id])]
        for topic_id, by_index in sharers.items()
    }
    for crowd in crowds.values():
        heapq.heapify(crowd)
    for each in subscribers:
        with_room = [topic_id for topic_id in each.topics if crowds[topic_id]]
        if not loads[each.member_id] and with_room:
            topic_id = min(with_room, key=lambda topic_id: (crowds[topic_id][0][0], topic_id))
            crowd = crowds[topic_id]
            count, index = crowd[0]
            heapq.heapreplace(crowd, (count + 1, index))
            give(each.member_id, topic_id, index)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in held.items() if indexes}
        for member_id, held in given.items()
    }


def _kept(
    each: ShareSubscriber, sizes: Sizes, sharers: dict[bytes, dict[int, int]], most: int, shared_by: int
) -> dict[bytes, set[int]]:
    kept: dict[bytes, set[int]] = {}
    left = most
    for topic_id, indexes in each.target.items():
        if topic_id not in each.topics:
            continue
        crowd = sharers[topic_id]
        for index in sorted(indexes):
            if left and index < sizes[topic_id] and crowd.get(index, 0) < shared_by:
                crowd[index] = crowd.get(index, 0) + 1
                kept.setdefault(topic_id, set()).add(index)
                left -= 1
    return kept
