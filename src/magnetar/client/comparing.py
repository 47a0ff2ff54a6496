"""One partition on two clusters, compared as it lies in their logs: the same batches at the same offsets.

Batches are compared byte for byte but for what each cluster's own leader writes into them, with nothing unpacked. Only
of topics that are compacted, where the other cluster may have let go of records since, each record is looked at.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from magnetar.client.cluster import Cluster, Partition
from magnetar.client.fetch import stored
from magnetar.records.batch import BatchHeader, PlainRecord, batches, each_record

_BEHIND_EPOCH = 16  # what follows base offset, length and leader epoch
_MOST_TOLD = 10


@dataclass(slots=True)
class Compared:
    """What a comparison found. ``differences`` has the first few in words."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    compacted_away: int = 0
    """Records that are here, and that the other cluster has compacted away since."""
    different: int = 0
    differences: list[str] = field(default_factory=list)

    def differ(self, what: str) -> None:
        """Note a difference."""
        self.different += 1
        if len(self.differences) < _MOST_TOLD:
            self.differences.append(what)


def compare(
    source: Cluster, target: Cluster, key: Partition, low: int, high: int, found: Compared, *, compacted: bool
) -> None:
    """Compare the offsets in ``[low, high)``; ``compacted`` allows the source to have fewer records."""
    theirs, ours = _batches(source, key, low, high), _batches(target, key, low, high)
    try:
        if compacted:
            _compare_records(
                f"{key[0]}-{key[1]}", _records(theirs, low, high), _records(ours, low, high), found
            )
        else:
            _compare_batches(f"{key[0]}-{key[1]}", theirs, ours, found)
    finally:
        theirs.close()
        ours.close()


def _batches(
    cluster: Cluster, key: Partition, low: int, high: int
) -> Generator[tuple[BatchHeader, memoryview]]:
    """Return the batches that hold records."""
    for fetched in stored(cluster, *key, low, high):
        for header, batch in batches(fetched.records):
            if header.records_count and header.base_offset < high:
                yield header, batch


def _compare_batches(
    name: str,
    theirs: Iterator[tuple[BatchHeader, memoryview]],
    ours: Iterator[tuple[BatchHeader, memoryview]],
    found: Compared,
) -> None:
    one, other = next(theirs, None), next(ours, None)
    while one is not None or other is not None:
        at = one[0].base_offset if one is not None else None
        here = other[0].base_offset if other is not None else None
        if here is None or (at is not None and at < here):
            found.differ(f"{name}: the batch at offset {at} is missing")
            one = next(theirs, None)
        elif at is None or here < at:
            found.differ(f"{name}: the batch at offset {here} is not in the source")
            other = next(ours, None)
        else:
            assert one is not None
            assert other is not None
            if one[1][_BEHIND_EPOCH:] != other[1][_BEHIND_EPOCH:]:
                found.differ(f"{name}: the batch at offset {at} is another one")
            found.batches += 1
            found.records += one[0].records_count
            found.bytes += len(one[1])
            one, other = next(theirs, None), next(ours, None)


def _records(
    found: Iterator[tuple[BatchHeader, memoryview]], low: int, high: int
) -> Iterator[tuple[bool, PlainRecord]]:
    for header, batch in found:
        for record in each_record(batch):
            if low <= record.offset < high:
                yield header.is_control, record


def _compare_records(
    name: str,
    theirs: Iterator[tuple[bool, PlainRecord]],
    ours: Iterator[tuple[bool, PlainRecord]],
    found: Compared,
) -> None:
    other = next(ours, None)
    for one in theirs:
        at = one[1].offset
        while other is not None and other[1].offset < at:
            found.compacted_away += 1
            other = next(ours, None)
        if other is None or other[1].offset != at:
            found.differ(f"{name}: the record at offset {at} is missing")
            continue
        if one != other:
            found.differ(f"{name}: the record at offset {at} is another one")
        found.records += 1
        other = next(ours, None)
    found.compacted_away += sum(1 for _ in ours) + (other is not None)
