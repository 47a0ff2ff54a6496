"""Whether a topic still has the history that was read of it.

Offsets alone do not tell: a data directory restored from a backup has the same topic ids and a shorter log, and
once producers have filled that up again, the old offsets name other records. So whatever keeps offsets (a stream's
checkpoint, a table) keeps a *mark* of each partition beside them: the offset of the last record that was read, and a
digest of that record.

A mark says nothing where its record is gone: retention and compaction take records away without a change of history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from magnetar.pipeline.options import TopicPartition

if TYPE_CHECKING:
    from magnetar.pipeline.plan import Plan
    from magnetar.pipeline.port import LastRecord

LOOK_BACK = 64
"""So many offsets before an end are searched for its last record: markers of transactions may lie behind it."""

COLUMNS = ("offset", "timestamp", "key", "value")
_DIGEST_BYTES = 7


class RecordMark(NamedTuple):
    """The last record that was read of a partition: its offset, and a digest of its time, key and value."""

    offset: int
    digest: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> RecordMark:
        """Read what ``str`` wrote; raise ``ValueError`` for anything else."""
        offset, _, digest = text.partition(":")
        if len(bytes.fromhex(digest)) != _DIGEST_BYTES:
            raise ValueError(f"{text!r} is no mark of a record")
        return cls(int(offset), digest)

    def packed(self, position: int) -> int | None:
        """Return the mark as a number for a table that stands at ``position``; None if it lies too far back."""
        back = position - 1 - self.offset
        return int(self.digest, 16) << 6 | back if 0 <= back < LOOK_BACK else None

    @classmethod
    def unpacked(cls, number: int, position: int) -> RecordMark:
        """Read what `packed` gave."""
        return cls(position - 1 - (number & LOOK_BACK - 1), f"{number >> 6:0{2 * _DIGEST_BYTES}x}")


Marks: TypeAlias = dict[TopicPartition, RecordMark]


def marks_before(plan: Plan, ends: Mapping[TopicPartition, int]) -> Marks:
    """Return the mark of the last record before each of these offsets; none where there is no record near it."""
    found = {}
    for which, end in ends.items():
        visible = plan.visible.get(which)
        if visible is None:
            continue  # it went since the offsets were looked up; slices say so
        low = max(end - LOOK_BACK, visible.first)
        if low < end <= visible.next and (mark := _last(plan, which, low, end)) is not None:
            found[which] = mark
    return found


def changed(plan: Plan, marks: Mapping[TopicPartition, RecordMark]) -> dict[TopicPartition, str]:
    """Return of which partitions another record than the marked one has its offset now, and a sentence on each."""
    found = {}
    for which, mark in marks.items():
        visible = plan.visible.get(which)
        if visible is None or not visible.first <= mark.offset < visible.next:
            continue
        now = _last(plan, which, mark.offset, mark.offset + 1)
        if now is not None and now.digest != mark.digest:
            found[which] = (
                f"{which.topic}-{which.partition} has another record at offset {mark.offset} than the one that was "
                "read: the topic was restored to an earlier state, and written anew since"
            )
    return found


def mark_of(record: LastRecord) -> RecordMark:
    """Return the mark of a record."""
    digest = blake2b(repr(record.time_us).encode(), digest_size=_DIGEST_BYTES)
    for content in (record.key, record.value):
        digest.update(b"-" if content is None else b"%d:" % len(content) + content)
    return RecordMark(record.offset, digest.hexdigest())


def _last(plan: Plan, which: TopicPartition, low: int, high: int) -> RecordMark | None:
    found = plan.reader.last_record(which, low, high, committed=plan.ask.read_committed)
    return None if found is None else mark_of(found)


def marks_to_json(marks: Mapping[TopicPartition, RecordMark]) -> dict[str, dict[str, str]]:
    """Return ``{topic: {partition: mark}}``."""
    found: dict[str, dict[str, str]] = {}
    for which, mark in sorted(marks.items()):
        found.setdefault(which.topic, {})[str(which.partition)] = str(mark)
    return found


def marks_from_json(content: Mapping[str, Mapping[str, str]]) -> Marks:
    """Read what `marks_to_json` gave."""
    return {
        TopicPartition(topic, int(partition)): RecordMark.parse(text)
        for topic, partitions in content.items()
        for partition, text in partitions.items()
    }


def shorter(plan: Plan, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the partitions whose log ends before what was read of them, and where it ends.

    What is visible under read_committed ends at the first open transaction; the log itself may go on behind it.
    """
    suspects = {
        which for which, at in known.items() if which in plan.visible and plan.visible[which].next < at
    }
    if not suspects:
        return {}
    ends = plan.log_ends(suspects)
    return {which: ends[which] for which in sorted(suspects) if ends[which] < known[which]}


def said_of_shorter(which: TopicPartition, known: int, end: int) -> str:
    """Return the sentence on a log that ends before what was read of it."""
    return (
        f"{which.topic}-{which.partition} ends at offset {end}, and was read up to {known}: the topic was restored to "
        "an earlier state, or the offsets are those of another topic"
    )


def only(marks: Mapping[TopicPartition, RecordMark], wanted: Iterable[TopicPartition]) -> Marks:
    """Return the marks of these partitions."""
    return {which: marks[which] for which in wanted if which in marks}
