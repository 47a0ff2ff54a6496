"""The port filled by ledgers in storage: metadata and indexes on the driver, ledgers' files on the executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerCorrupt
from magnetar.pipeline.catalog import LedgerCatalog, PartitionLog
from magnetar.pipeline.few_records import NotPlain
from magnetar.pipeline.ledger_part import ChunkedLog
from magnetar.pipeline.options import SourceOptions, TopicPartition
from magnetar.pipeline.port import LastRecord, Reader, RecordQuery, Slice, SliceSize, TopicInfo, Visible
from magnetar.pipeline.slices import EARLIER_LEDGERS, LedgerSlice
from magnetar.pipeline.watermarks import ask_broker, broker_address

if TYPE_CHECKING:
    from magnetar.pipeline.offloaded import OffloadedAt


class LedgerReader(Reader):
    """One look at a data directory, beside a broker or without one. Raises ``FileNotFoundError`` if it is none."""

    def __init__(self, data: Path, options: SourceOptions) -> None:
        self._data = data
        self._options = options
        # Whom to ask is settled, and the answer known, before the ledgers are looked at: they only grow meanwhile.
        self.broker = options.bootstrap_servers or broker_address(data)
        with LedgerCatalog(data) as catalog:
            self._topics = catalog.topics()
        self.logs: dict[TopicPartition, PartitionLog] = {}

    def topics(self) -> Mapping[str, TopicInfo]:
        return self._topics

    def visible(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, Visible]:
        committed = self._options.read_committed
        told = None
        if self.broker is not None:
            told = ask_broker(self.broker, wanted, settings=self._options.kafka, read_committed=committed)
        with LedgerCatalog(self._data) as catalog:
            for which in wanted:
                self.logs[which] = catalog.log(
                    which, live=told is not None, skip_damage=self._options.skip_damage
                )
        return {
            which: self._on_disk(which, committed=committed) if told is None else told[which]
            for which in wanted
        }

    def _on_disk(self, which: TopicPartition, *, committed: bool) -> Visible:
        log = self.logs[which]
        end = log.log_end_offset()
        if committed:
            from magnetar.pipeline.transactions import first_undecided

            undecided = first_undecided(self._data, log.ledger_ids, tuple(log.offloaded.values()))
            end = end if undecided is None else max(undecided, log.log_start_offset)
        return Visible(log.log_start_offset, end)

    def offset_at_time(self, which: TopicPartition, timestamp_ms: int) -> int | None:
        return self.logs[which].offset_at_time(timestamp_ms)

    def slices(
        self, which: TopicPartition, low: int, high: int, size: SliceSize, ask: RecordQuery
    ) -> list[Slice]:
        log = self.logs[which]
        if log.log_end_offset() < high:
            raise LedgerCorrupt(
                f"{which}: the files end at offset {log.log_end_offset()}, and {high} was promised"
            )
        ids, offloaded = log.ledger_ids, log.offloaded
        max_chunked = self._options.chunked_bytes
        return [
            LedgerSlice(
                which.topic, which.partition, cut.low, cut.high, str(self._data), ledger.ledger_id,
                cut.start, cut.end, cut.entry_id,
                tuple(ids[ids.index(ledger.ledger_id) + 1 :]) if ask.read_committed else (),
                ChunkedLog(
                    max_chunked,
                    log.log_start_offset,
                    tuple(ids[: ids.index(ledger.ledger_id)][-EARLIER_LEDGERS:]),
                ),
                _looked_into(ids, offloaded, ledger.ledger_id),
            )
            for ledger in log.overlapping(low, high, times_ms=ask.times_ms, only=ask.ledgers)
            for cut in ledger.cuts(low, high, size, ask.times_ms)
        ]  # fmt: skip

    def last_record(
        self, which: TopicPartition, low: int, high: int, *, committed: bool
    ) -> LastRecord | None:
        found = None
        try:
            for ledger in self.logs[which].overlapping(low, high):
                found = ledger.last_record(low, high, committed=committed) or found
        except NotPlain:
            return super().last_record(which, low, high, committed=committed)
        return found

    def close(self) -> None:
        self.logs = {}


def _looked_into(
    ids: Sequence[int], offloaded: Mapping[int, OffloadedAt], ledger_id: int
) -> tuple[OffloadedAt, ...]:
    """Return where those lie that a slice of a ledger may look into: some before it, and all behind it."""
    first = max(ids.index(ledger_id) - EARLIER_LEDGERS, 0)
    return tuple(offloaded[each] for each in ids[first:] if each in offloaded)
