"""From options to slices: which partitions, from which offset to which, in how many pieces. Runs on the driver."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.sparse import POINT_EVERY_BYTES
from magnetar.pipeline.catalog import Catalog, PartitionLog, matching
from magnetar.pipeline.options import EARLIEST, LATEST, Bound, Offsets, SourceOptions, TopicPartition
from magnetar.pipeline.slices import LedgerSlice, slices
from magnetar.pipeline.watermarks import Visible, ask_broker, broker_address


class DataLost(Exception):
    """Records that were asked for are gone; ``failOnDataLoss`` = false would go on without them."""


class Plan:
    """One look at the data directory: the logs of the wanted partitions, and what is visible of each."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        # Whom to ask is settled, and the answer known, before the ledgers are looked at: they only grow meanwhile.
        address = options.bootstrap_servers or broker_address(options.data)
        with Catalog(options.data) as catalog:
            wanted = _partitions(catalog, options)
        told = None if address is None else ask_broker(address, wanted)
        with Catalog(options.data) as catalog:
            self.logs = {which: catalog.log(which, live=address is not None) for which in wanted}
        self.visible = {
            which: told[which] if told is not None else Visible(log.first_offset, log.next_offset())
            for which, log in self.logs.items()
        }

    def starts(self) -> Offsets:
        """Give where each partition begins."""
        return {which: self._resolve(which, self._options.start, starting=True) for which in self.visible}

    def ends(self) -> Offsets:
        """Give the offset before which each partition ends."""
        return {which: self._resolve(which, self._options.end, starting=False) for which in self.visible}

    def latest(self) -> Offsets:
        """Give the offset behind the last visible record of each partition."""
        return {which: visible.next for which, visible in self.visible.items()}

    def slices(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[LedgerSlice]:
        """Cut ``[starts, ends)`` into slices, at least ``minPartitions`` if there is enough to cut."""
        ranges = {which: self._checked(which, starts.get(which), end) for which, end in ends.items()}
        size = self._options.slice_bytes
        while True:
            found = [
                piece
                for which, (low, high) in ranges.items()
                if low < high
                for piece in slices(self._log(which, high), low, high, slice_bytes=size)
            ]
            if not found or len(found) >= self._options.min_partitions or size <= POINT_EVERY_BYTES:
                return found
            size //= 2

    def _log(self, which: TopicPartition, high: int) -> PartitionLog:
        log = self.logs[which]
        if log.next_offset() < high:
            raise LedgerCorrupt(
                f"{which}: the files end at offset {log.next_offset()}, and {high} was promised"
            )
        return log

    def _resolve(self, which: TopicPartition, bound: Bound, *, starting: bool) -> int:
        visible = self.visible[which]
        time = bound.time_of(which)
        if time is not None:
            return self._at_time(which, time, starting=starting)
        if bound.times is not None:
            raise ValueError(f"no timestamp is given for {which}")
        offset = bound.everywhere
        if bound.offsets is not None:
            if which not in bound.offsets:
                raise ValueError(
                    f"no offset is given for {which}; name all partitions (-2 earliest, -1 latest)"
                )
            offset = bound.offsets[which]
        return {EARLIEST: visible.first, LATEST: visible.next}.get(offset, offset)

    def _at_time(self, which: TopicPartition, timestamp_ms: int, *, starting: bool) -> int:
        visible = self.visible[which]
        found = self.logs[which].offset_at_time(timestamp_ms)
        if found is not None and found < visible.next:
            return found
        if starting and not self._options.latest_if_too_young:
            raise ValueError(
                f"{which} has no record of {timestamp_ms} or later; startingOffsetsByTimestampStrategy=latest "
                "would begin behind the last one"
            )
        return visible.next

    def _checked(self, which: TopicPartition, low: int | None, high: int) -> tuple[int, int]:
        """Give the range, cut to what is there; raise `DataLost` if something was cut off."""
        visible = self.visible.get(which)
        if visible is None:
            self._lost(f"{which} is gone")
            return 0, 0
        low = visible.first if low is None else low
        if low < visible.first:
            self._lost(f"{which} begins at offset {visible.first}; {low} is gone")
        if max(low, high) > visible.next:
            self._lost(f"{which} ends at offset {visible.next}; {max(low, high)} was asked for")
        return max(low, visible.first), min(high, visible.next)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}. To go on without what is lost, set failOnDataLoss to false")
        warnings.warn(what, stacklevel=2)


def _partitions(catalog: Catalog, options: SourceOptions) -> list[TopicPartition]:
    topics = catalog.topics()
    if options.assigned is not None:
        wanted = list(options.assigned)
    else:
        names = options.topics if options.pattern is None else matching(topics, options.pattern)
        wanted = [TopicPartition(name, p) for name in names for p in range(topics.get(name, 1))]
    for which in wanted:
        if which.topic not in topics:
            raise ValueError(
                f"there is no topic {which.topic!r} in {options.data}; there are: {sorted(topics)}"
            )
        if which.partition >= topics[which.topic]:
            raise ValueError(
                f"topic {which.topic!r} has {topics[which.topic]} partitions, no {which.partition}"
            )
    return wanted
