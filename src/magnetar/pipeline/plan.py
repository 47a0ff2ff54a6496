"""From options to slices: which partitions, from which offset to which, in how many pieces. Runs on the driver."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.pipeline.catalog import matching
from magnetar.pipeline.ledger_reader import LedgerReader
from magnetar.pipeline.options import EARLIEST, LATEST, Bound, Offsets, SourceOptions, TopicPartition
from magnetar.pipeline.port import Reader, RecordQuery, Slice, SliceSize, TopicInfo

if TYPE_CHECKING:
    from magnetar.pipeline.filters import Scope


class DataLost(Exception):
    """Records that were asked for are gone; ``failOnDataLoss`` = false would go on without them."""


def open_reader(options: SourceOptions) -> Reader:
    """Return the way to the records: the ledgers where a path is given, otherwise a broker's Fetch."""
    if options.zookeeper is not None:
        from magnetar.pipeline.on_bookies import PastBrokersReader

        return PastBrokersReader(options)
    if options.data is None:
        from magnetar.pipeline.through_fetch import FetchReader

        return FetchReader(options)
    return LedgerReader(options.data, options)


class Plan:
    """One look at the records: what is there of the wanted partitions, and what is visible of each.

    ``missing`` says that topics which are gone are no error.
    """

    def __init__(self, options: SourceOptions, *, missing: bool = False) -> None:
        self._options = options
        self.reader = open_reader(options)
        topics = self.reader.topics()
        wanted = partitions_of(topics, options, missing=missing)
        self.visible = self.reader.visible(wanted)
        self.ids = {which.topic: topics[which.topic].topic_id for which in wanted}

    @property
    def ask(self) -> RecordQuery:
        """What the options ask of every record."""
        return ask_of(self._options)

    def log_ends(self, wanted: Collection[TopicPartition]) -> Offsets:
        """Return where the logs of some partitions end, whether or not transactions are open before that."""
        if not self._options.read_committed:
            return {which: self.visible[which].next for which in wanted}
        with open_reader(replace(self._options, read_committed=False)) as reader:
            reader.topics()
            return {which: visible.next for which, visible in reader.visible(sorted(wanted)).items()}

    def starts(self) -> Offsets:
        """Return where each partition begins."""
        return {which: self._resolve(which, self._options.start, starting=True) for which in self.visible}

    def ends(self) -> Offsets:
        """Return the offset before which each partition ends."""
        return {which: self._resolve(which, self._options.end, starting=False) for which in self.visible}

    def latest(self) -> Offsets:
        """Return the offset behind the last visible record of each partition."""
        return {which: visible.next for which, visible in self.visible.items()}

    def slices(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        scope: Scope | None = None,
    ) -> list[Slice]:
        """Cut ``[starts, ends)`` into slices, as small as the options say; leave out what ``scope`` does not want."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for which, end in ends.items():
            if scope is not None and not scope.has_partition(which):
                continue
            low, high = self._checked(which, starts.get(which), end)
            low, high = (low, high) if scope is None else scope.offsets_within(low, high)
            if low < high:
                ranges[which] = low, high
        size = self._size(sum(high - low for low, high in ranges.values()))
        ask = self.ask if scope is None else scope.narrowed(self.ask)
        return [
            piece
            for which, (low, high) in ranges.items()
            for piece in self.reader.slices(which, low, high, size, ask)
        ]

    def close(self) -> None:
        """Let go of what the look took."""
        self.reader.close()

    def _size(self, offsets: int) -> SliceSize:
        most = self._options.max_records_per_partition
        if self._options.min_partitions:
            fair = max(offsets // self._options.min_partitions, 1)
            most = fair if most is None else min(most, fair)
        return SliceSize(self._options.slice_bytes, most)

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
        found = self.reader.offset_at_time(which, timestamp_ms)
        if found is not None and found < visible.next:
            return max(found, visible.first)
        if starting and not self._options.latest_if_too_young:
            raise ValueError(
                f"{which} has no record of {timestamp_ms} or later; startingOffsetsByTimestampStrategy=latest "
                "would begin behind the last one"
            )
        return visible.next

    def _checked(self, which: TopicPartition, low: int | None, high: int) -> tuple[int, int]:
        """Return the range, cut to what is there; raise `DataLost` if something was cut off."""
        visible = self.visible.get(which)
        if visible is None:
            if low is None or low < high:
                self.lost(f"{which.topic}-{which.partition} is gone")
            return 0, 0
        low = visible.first if low is None else low
        if low < visible.first and low < high:
            self.lost(f"{which.topic}-{which.partition} begins at offset {visible.first}; {low} is gone")
        if max(low, high) > visible.next:
            self.lost(
                f"{which.topic}-{which.partition} ends at offset {visible.next}; {max(low, high)} was asked for"
            )
        return max(low, visible.first), min(high, visible.next)

    def lost(self, what: str) -> None:
        """Raise `DataLost`, or warn where the options say that it is no error."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}. To go on without what is lost, set failOnDataLoss to false")
        warnings.warn(what, stacklevel=2)


def ask_of(options: SourceOptions) -> RecordQuery:
    """Return what the options ask of every record."""
    return RecordQuery(
        columns=options.columns,
        read_committed=options.read_committed,
        skip_damage=options.skip_damage,
        ledgers=options.ledgers,
    )


def partitions_of(
    topics: Mapping[str, TopicInfo], options: SourceOptions, *, missing: bool = False
) -> list[TopicPartition]:
    """Return the partitions that the options want; raise ``ValueError`` for those that there are not."""
    if options.assigned is not None:
        wanted = list(options.assigned)
    else:
        names = options.topics if options.pattern is None else matching(topics, options.pattern)
        wanted = [
            TopicPartition(name, p)
            for name in names
            for p in range(topics[name].partitions if name in topics else 1)
        ]
    there = []
    for which in wanted:
        known = topics.get(which.topic)
        if known is not None and which.partition < known.partitions:
            there.append(which)
        elif not missing:
            place = options.data or options.zookeeper or options.bootstrap_servers
            raise ValueError(
                f"there is no topic {which.topic!r} in {place}; there are: {sorted(topics)}"
                if known is None
                else f"topic {which.topic!r} has {known.partitions} partitions, no {which.partition}"
            )
    return there
