"""What a partition remembers of Kafka's producers: of each the epoch, the last five batches, a transaction (KIP-98).

The state follows from the log; a snapshot (``producer_snapshot``) only saves reading all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from magnetar.ledger.transactions import LogTransactions
from magnetar.logs import producer_snapshot
from magnetar.logs.producer_snapshot import Kept, Row
from magnetar.records.batch import TRANSACTIONAL, BatchHeader
from magnetar.records.pulsar_transactions import is_transactions

KEPT_BATCHES = 5
_KEPT_LATE = 1000
_SEQUENCES = 1 << 31
NO_EPOCH = -1
NEVER = -1
BUMPS_EPOCHS = 2
"""The ``transaction.version`` from which on each transaction has an epoch of its own (KIP-890)."""


class EndTransactionMarker(NamedTuple):
    """The end of a transaction in one partition. ``version`` is Kafka's ``transaction.version`` of its client."""

    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int = 0
    version: int = 0


class ProducerRefused(Exception):
    """A batch that does not go on where its producer left off."""


class OutOfOrderSequence(ProducerRefused):
    """A batch before this one never arrived. ``due`` is the sequence that was to come."""

    def __init__(self, message: str, due: int) -> None:
        super().__init__(message)
        self.due = due

    def is_early(self, sequence: int) -> bool:
        """Tell whether ``sequence``, which came, is one that is due later, rather than one that was due before."""
        return 0 < (sequence - self.due) % _SEQUENCES < _SEQUENCES // 2


class BatchTooEarly(ProducerRefused):
    """The batch before this one was refused a moment ago, or may be, and is on its way again."""


class InvalidProducerEpoch(ProducerRefused):
    """A newer instance of the same producer has written here."""


class NotInTransaction(ProducerRefused):
    """A batch that is of no transaction while its producer has one open, or of one that has ended."""


class MarkerFenced(ProducerRefused):
    """A marker of a transaction coordinator that is none any more."""


class ProducerStateEntry:
    """One producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_due", "marked_ms")

    def __init__(self, epoch: int, first_due: int = 0) -> None:
        self.epoch = epoch
        self.first_due = first_due
        self.batches: deque[Kept] = deque(maxlen=KEPT_BATCHES)
        self.coordinator_epoch = NO_EPOCH
        """That of its last marker."""
        self.marked_ms = NEVER
        """When that was written."""

    @property
    def latest_ms(self) -> int:
        """Return when it was last heard of, ms: the time of its last batch, or of its last marker."""
        return max(self.batches[-1].timestamp if self.batches else NEVER, self.marked_ms)


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_late", "_markers", "_producers", "has_moved", "transactions")

    def __init__(self) -> None:
        self.has_moved = False
        """Whether another broker may have had the partition before."""
        self._producers: dict[int, ProducerStateEntry] = {}
        self._late: dict[int, tuple[int, int]] = {}
        """Of producers that nothing is known of: with which epoch and sequence they wanted to begin, the lowest."""
        self._markers: dict[int, tuple[int, int, int, int]] = {}
        """By the offset of a marker that may be taken back: whose it is, and epochs and time of before."""
        self.transactions = LogTransactions()

    def __len__(self) -> int:
        return len(self._producers)

    def active(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        """Yield each producer that has batches, markers or an open transaction in the log: its id, and itself."""
        opened = self.transactions.first_of
        for producer_id, producer in self._producers.items():
            if producer.batches or producer.marked_ms != NEVER or opened(producer_id) is not None:
                yield producer_id, producer

    def epoch_of(self, producer_id: int) -> int:
        """Return the epoch of a producer; -1 if nothing is known of it."""
        known = self._producers.get(producer_id)
        return NO_EPOCH if known is None else known.epoch

    def check(self, batch: BatchHeader) -> Kept | None:
        """Return the batch in the log that this one repeats, or None if it is the next one.

        Raises ``OutOfOrderSequence``, ``BatchTooEarly`` or ``InvalidProducerEpoch``.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:  # nothing is known (any more): any first sequence will do
            if self.has_moved and batch.base_sequence:
                self._begins_late(batch)
            return None
        if batch.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} is at epoch {known.epoch}, not {batch.producer_epoch}"
            )
        if not batch.attributes & TRANSACTIONAL and self.transactions.first_of(batch.producer_id) is not None:
            raise NotInTransaction(f"producer {batch.producer_id} has a transaction open")
        if batch.producer_epoch > known.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"a new epoch begins with sequence 0, not {batch.base_sequence}", due=0
                )
            return None
        due = (known.batches[-1].last_sequence + 1) & 0x7FFFFFFF if known.batches else known.first_due
        if batch.base_sequence == due:
            return None
        for kept in known.batches:
            if kept.first_sequence == batch.base_sequence and kept.last_sequence == batch.last_sequence:
                return kept
        raise OutOfOrderSequence(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence} where {due} is due", due
        )

    def _begins_late(self, batch: BatchHeader) -> None:
        """Refuse it once to begin with anything but its first batch; a batch that comes again may begin.

        What was sent before it may be on its way to the broker that had the partition until now, and never stored:
        librdkafka takes the acknowledgement of a batch for that of all before it (rd_kafka_dr_implicit_ack). Refused
        as by a broker that does not lead, clients send all that is unanswered again, and in order.
        """
        wanted = (batch.producer_epoch, batch.base_sequence)
        before = self._late.pop(batch.producer_id, None)
        if before == wanted:
            return
        if before is not None and before[0] == wanted[0]:
            wanted = min(before, wanted)
        if len(self._late) >= _KEPT_LATE:
            del self._late[next(iter(self._late))]
        self._late[batch.producer_id] = wanted
        raise BatchTooEarly(
            f"nothing is known of producer {batch.producer_id}, which begins with sequence {batch.base_sequence}: if "
            "no batch before it is on its way, send it once more"
        )

    def add(self, batch: BatchHeader, base_offset: int) -> None:
        """Note a batch that went into the log."""
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        known.batches.append(Kept(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp))
        if batch.attributes & TRANSACTIONAL:
            self.transactions.begin(batch.producer_id, base_offset)

    # -- transactions

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open in this epoch."""
        return self.transactions.first_of(producer_id) is not None and self.epoch_of(producer_id) == epoch

    def check_marker(self, marker: EndTransactionMarker) -> bool:
        """Return whether a marker is to be written, or (False) repeats one; raise ``ProducerRefused`` for zombies'.

        A marker of the second version bears an epoch above that of its transaction's batches.
        """
        known = self._producers.get(marker.producer_id)
        if known is None:
            return True
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise MarkerFenced(
                f"the coordinator of producer {marker.producer_id} is at epoch {known.coordinator_epoch}, "
                f"not {marker.coordinator_epoch}"
            )
        is_open = self.transactions.first_of(marker.producer_id) is not None
        if marker.version >= BUMPS_EPOCHS and marker.epoch == known.epoch and not is_open:
            return known.marked_ms == NEVER  # it was written before, and its coordinator has not heard of it
        if marker.epoch < known.epoch or (
            marker.version >= BUMPS_EPOCHS and marker.epoch == known.epoch and is_open
        ):
            raise InvalidProducerEpoch(
                f"producer {marker.producer_id} is at epoch {known.epoch}, and a marker of {marker.epoch} too old"
            )
        return True

    def end(self, marker: EndTransactionMarker, offset: int, now_ms: int) -> None:
        """Note a marker that went into the log."""
        producer_id = marker.producer_id
        known = self._producers.get(producer_id)
        before = NO_EPOCH if known is None else known.epoch
        if known is None or known.epoch != marker.epoch:
            known = self._producers[producer_id] = ProducerStateEntry(marker.epoch)
        self._markers[offset] = (producer_id, before, known.coordinator_epoch, known.marked_ms)
        known.coordinator_epoch, known.marked_ms = marker.coordinator_epoch, now_ms
        self.transactions.end(producer_id, offset, committed=marker.committed)

    def settled(self, high_watermark: int) -> None:
        """Nothing below ``high_watermark`` can be taken back any more."""
        while self._markers and (first := next(iter(self._markers))) < high_watermark:
            del self._markers[first]

    def not_kept(self, batch: BatchHeader) -> None:
        """Note a batch that storage refused: if it is its producer's first, those sent behind it must not go in."""
        if batch.producer_id not in self._producers:
            self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch, batch.base_sequence)

    @property
    def await_first(self) -> bool:
        """Whether the first batch of some producer was not kept, and those sent behind it must not go in."""
        return any(not producer.batches for producer in self._producers.values())

    def expect(self, before: ProducerStates) -> None:
        """Have producers of which the log knows nothing go on where they were due in a partition before this one."""
        for producer_id, producer in before._producers.items():
            if producer_id not in self._producers:
                due = producer.first_due
                if producer.batches:
                    due = (producer.batches[-1].last_sequence + 1) & 0x7FFFFFFF
                self._producers[producer_id] = ProducerStateEntry(producer.epoch, due)

    def take_back(self, offset: int) -> None:
        """Forget the batches from ``offset`` on: they did not go in, and those sent behind them must not, either."""
        for producer in self._producers.values():
            batches = producer.batches
            while batches and batches[-1].base_offset >= offset:
                producer.first_due = batches.pop().first_sequence
        for marker_offset in [each for each in self._markers if each >= offset]:
            producer_id, epoch, coordinator_epoch, marked_ms = self._markers.pop(marker_offset)
            known = self._producers.get(producer_id)
            if known is not None:
                # Its batches of that epoch are forgotten if the marker began a new one; they are not sent again.
                known.epoch, known.coordinator_epoch, known.marked_ms = epoch, coordinator_epoch, marked_ms
        self.transactions.take_back(offset)

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch or marker is of then or older, but for those with open transactions."""
        opened = self.transactions.first_of
        for producer_id, producer in list(self._producers.items()):
            if producer.latest_ms <= before_ms and opened(producer_id) is None:
                del self._producers[producer_id]

    def encode(self) -> bytes:
        """Return the snapshot."""
        first_of = self.transactions.first_of
        kafkas = (
            Row(
                producer_id,
                producer.epoch,
                producer.batches,
                first_of(producer_id),
                producer.coordinator_epoch,
                producer.marked_ms,
                0 if producer.batches else producer.first_due,
            )
            for producer_id, producer in self.active()
        )
        pulsars = (
            Row(producer_id, 0, (), first)
            for producer_id, first in self.transactions.open().items()
            if producer_id not in self._producers
        )
        return producer_snapshot.encode(chain(kafkas, pulsars), self.transactions.aborted())

    @classmethod
    def decode(cls, data: bytes) -> ProducerStates:
        """Return the states of a snapshot; raise ``SnapshotUnreadable``."""
        states = cls()
        rows, aborted = producer_snapshot.decode(data)
        for row in rows:
            if is_transactions(row.producer_id) and row.coordinator_epoch == NO_EPOCH:
                continue  # one of Pulsar's transactions: there is nothing to know of it but where it began
            if not row.batches and row.marked_ms == NEVER and not row.first_due:
                continue  # nor of one that came from another cluster
            producer = states._producers[row.producer_id] = ProducerStateEntry(row.epoch, row.first_due)
            producer.batches.extend(row.batches)
            producer.coordinator_epoch, producer.marked_ms = row.coordinator_epoch, row.marked_ms
        opened = [(row.producer_id, row.first_offset) for row in rows if row.first_offset is not None]
        states.transactions.restore(opened, aborted)
        return states
