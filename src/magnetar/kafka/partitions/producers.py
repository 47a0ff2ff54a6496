"""What a partition remembers of idempotent producers: for each the epoch and its last five batches (KIP-98).

The state follows from the log; a snapshot (``producer_snapshot``) only saves reading all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from magnetar.kafka.partitions import producer_snapshot
from magnetar.kafka.partitions.producer_snapshot import BatchMetadata, Row
from magnetar.records.batch import BatchHeader

KEPT_BATCHES = 5


class ProducerRefused(Exception):
    """A batch that does not go on where its producer left off."""


class OutOfOrderSequence(ProducerRefused):
    """A batch before this one never arrived."""


class InvalidProducerEpoch(ProducerRefused):
    """A newer instance of the same producer has written here."""


class ProducerStateEntry:
    """One producer id in one partition."""

    __slots__ = ("batches", "epoch", "first_due")

    def __init__(self, epoch: int, first_due: int = 0) -> None:
        self.epoch = epoch
        self.first_due = first_due
        self.batches: deque[BatchMetadata] = deque(maxlen=KEPT_BATCHES)


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, ProducerStateEntry] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def active(self) -> Iterator[tuple[int, ProducerStateEntry, BatchMetadata]]:
        """Yield each producer that has batches in the log: its id, itself, its last batch."""
        for producer_id, producer in self._producers.items():
            if producer.batches:
                yield producer_id, producer, producer.batches[-1]

    def check(self, batch: BatchHeader) -> BatchMetadata | None:
        """Return the batch in the log that this one repeats, or None if it is the next one.

        Raises ``OutOfOrderSequence`` or ``InvalidProducerEpoch``.
        """
        known = self._producers.get(batch.producer_id)
        if known is None:
            return None  # nothing is known (any more): any first sequence will do
        if batch.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {batch.producer_id} is at epoch {known.epoch}, not {batch.producer_epoch}"
            )
        if batch.producer_epoch > known.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(f"a new epoch begins with sequence 0, not {batch.base_sequence}")
            return None
        due = (known.batches[-1].last_sequence + 1) & 0x7FFFFFFF if known.batches else known.first_due
        if batch.base_sequence == due:
            return None
        for kept in known.batches:
            if kept.first_sequence == batch.base_sequence and kept.last_sequence == batch.last_sequence:
                return kept
        raise OutOfOrderSequence(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence} where {due} is due"
        )

    def add(self, batch: BatchHeader, base_offset: int) -> None:
        """Note a batch that went into the log."""
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch)
        known.batches.append(
            BatchMetadata(batch.base_sequence, batch.last_sequence, base_offset, batch.max_timestamp)
        )

    def not_kept(self, batch: BatchHeader) -> None:
        """Note a batch that storage refused: if it is its producer's first, those sent behind it must not go in."""
        if batch.producer_id not in self._producers:
            self._producers[batch.producer_id] = ProducerStateEntry(batch.producer_epoch, batch.base_sequence)

    def take_back(self, offset: int) -> None:
        """Forget the batches from ``offset`` on: they did not go in, and those sent behind them must not, either."""
        for producer in self._producers.values():
            batches = producer.batches
            while batches and batches[-1].base_offset >= offset:
                producer.first_due = batches.pop().first_sequence

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch is of then or older."""
        for producer_id, producer in list(self._producers.items()):
            if not producer.batches or producer.batches[-1].timestamp <= before_ms:
                del self._producers[producer_id]

    def encode(self) -> bytes:
        """Return the snapshot."""
        return producer_snapshot.encode(
            Row(producer_id, producer.epoch, producer.batches) for producer_id, producer, _ in self.active()
        )

    @classmethod
    def decode(cls, data: bytes) -> ProducerStates:
        """Return the states of a snapshot; raise ``SnapshotUnreadable``."""
        states = cls()
        for producer_id, epoch, batches in producer_snapshot.decode(data):
            producer = states._producers[producer_id] = ProducerStateEntry(epoch)
            producer.batches.extend(batches)
        return states
