"""Which offsets a commit brings, and how far a table is: always ``[low, high)`` per partition of a topic.

A range says what was read, not how many rows came of it: offsets without a record (control batches, compaction,
aborted transactions) lie inside of ranges too. A table's position is the offset that it needs next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from magnetar.pipeline.options import Offsets, TopicPartition
from magnetar.pipeline.tables.errors import OffsetsCommitted


class OffsetRange(NamedTuple):
    """The offsets ``[low, high)`` of one partition."""

    topic: str
    partition: int
    low: int
    high: int


Json: TypeAlias = dict[str, dict[str, list[int]]]


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """Return what lies between two positions, partition by partition; nothing for one that did not move."""
    return [
        OffsetRange(which.topic, which.partition, starts[which], end)
        for which, end in sorted(ends.items())
        if end > starts[which]
    ]


def advance(position: Mapping[TopicPartition, int], ranges: Iterable[OffsetRange]) -> Offsets:
    """Return the position behind ``ranges``; raise `OffsetsCommitted` where the table already is further.

    A range may begin behind the position: what lies between was not to be had any more.
    """
    found = dict(position)
    for each in ranges:
        which = TopicPartition(each.topic, each.partition)
        if each.low < found.get(which, 0) or each.high <= each.low:
            raise OffsetsCommitted(
                f"{each.topic}-{each.partition}: offsets {each.low} to {each.high - 1} cannot be added to a table "
                f"that needs offset {found.get(which, 0)} next; another writer was here, or they were written before"
            )
        found[which] = each.high
    return found


def ranges_to_json(ranges: Iterable[OffsetRange]) -> Json:
    """Return ``{topic: {partition: [low, high]}}``."""
    found: Json = {}
    for each in ranges:
        span = found.setdefault(each.topic, {}).setdefault(str(each.partition), [each.low, each.high])
        span[0], span[1] = min(span[0], each.low), max(span[1], each.high)
    return found
