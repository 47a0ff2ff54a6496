"""Which batches of idempotent producers are due after the proxy, or a leader that moved, has refused one.

A producer has several batches on their way to a partition. The leader that refuses one since it leads no more refuses
those behind it, too (`magnetar.kafka.partitions.due_batches`). Through the proxy the next leader may be found in
between: a batch behind the refused one would reach it first, be out of order (KIP-98), and its producer takes that for
records that are lost: it begins a new epoch, and sends under that what may be stored. So batches wait for their turn
here, with the client.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from magnetar.proxy.kafka.spreading import Row
from magnetar.records.batch import NO_PRODUCER, BatchHeader, read_header
from magnetar.records.compression import Buffer
from magnetar.records.errors import RecordsError

_MAX_DUE = 10_000
"""That are remembered of one client: it sends what it likes."""
_KEPT_S = 120.0
"""Producers send again within seconds; one that does not has given its batch up."""
_SEQUENCES = 1 << 31


class _Due(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int
    until_s: float


class AwaitedBatches:
    """Those of one client, by partition."""

    def __init__(self) -> None:
        self._due: dict[Row, _Due] = {}

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, row: Row) -> bool:
        """Whether a batch of that partition is looked at before it is sent."""
        return row in self._due

    def refused(self, row: Row, records: Buffer | None) -> None:
        """A batch was refused, or nobody knows what became of it: those behind it are not to overtake it."""
        batch = _header(records)
        if batch is None or batch.producer_id == NO_PRODUCER or self._is_behind(row, batch):
            return
        if row in self._due or len(self._due) < _MAX_DUE:
            until_s = time.monotonic() + _KEPT_S
            self._due[row] = _Due(batch.producer_id, batch.producer_epoch, batch.base_sequence, until_s)

    def is_early(self, row: Row, records: Buffer | None) -> bool:
        """Tell whether a batch is to be refused, for one before it is due. Any other ends the wait."""
        if row not in self._due:
            return False
        batch = _header(records)
        if batch is not None and self._is_behind(row, batch):
            return True
        del self._due[row]
        return False

    def _is_behind(self, row: Row, batch: BatchHeader) -> bool:
        due = self._due.get(row)
        if due is None or (due.producer_id, due.epoch) != (batch.producer_id, batch.producer_epoch):
            return False
        ahead = (batch.base_sequence - due.sequence) % _SEQUENCES
        return 0 < ahead < _SEQUENCES // 2 and time.monotonic() < due.until_s


def _header(records: Buffer | None) -> BatchHeader | None:
    try:
        return read_header(memoryview(records or b""))
    except RecordsError:  # a broker says what is wrong with it
        return None
