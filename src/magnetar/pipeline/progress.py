"""A stream's offsets, as its checkpoint and its progress show them.

``{"flights": {"0": 23, "1": 5}, "@ids": {"flights": "<topic id>"}, "@marks": {"flights": {"0": "22:<digest>"}}}``:
those of Spark's Kafka source, and besides (no topic can have such a name) the topics' ids, so that a topic that was
deleted and made anew is not taken for the old one, and marks of the last records that were read
(`magnetar.pipeline.history`), so that another history of the same topic is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.pipeline.history import Marks, RecordMark, marks_from_json, marks_to_json
from magnetar.pipeline.options import Offsets, TopicPartition

_IDS = "@ids"
_MARKS = "@marks"
_BESIDES = (_IDS, _MARKS)


def to_json(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str] | None = None,
    marks: Mapping[TopicPartition, RecordMark] | None = None,
) -> dict[str, Any]:
    """Return Spark's form of offsets."""
    found: dict[str, Any] = {}
    for which, offset in sorted(offsets.items()):
        found.setdefault(which.topic, {})[str(which.partition)] = offset
    if ids:
        found[_IDS] = {topic: ids[topic] for topic in found if topic in ids}
    if marks:
        found[_MARKS] = marks_to_json({which: mark for which, mark in marks.items() if which in offsets})
    return found


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Read the offsets that `to_json` gave; raise ``ValueError`` for what no such source has written."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in offsets.items()
            if topic not in _BESIDES
            for partition, offset in partitions.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"the checkpoint is not one of this source: {offsets!r} ({error!r})") from None


def ids_of(offsets: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Read the topics' ids that `to_json` gave; checkpoints without them are as good."""
    return dict(offsets.get(_IDS, {}))


def marks_of(offsets: Mapping[str, Mapping[str, Any]]) -> Marks:
    """Read the marks that `to_json` gave; checkpoints without them are as good."""
    return marks_from_json(offsets.get(_MARKS, {}))
