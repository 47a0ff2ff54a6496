"""Which batches of idempotent producers are due in partitions that are not open.

A producer has several batches on their way to a partition. Where the first of them is lost with the log, because
another owner took it, or is refused because the log cannot be opened or is not here, the next one finds a partition
that was opened anew and knows nothing of the producer: any sequence would do (KIP-98), and what the producer sends
again came too late for its place. So what was due outlives the partition until it is open again, here. What comes
too early for it gets the same refusal (`Partition.settles`).
"""

from __future__ import annotations

from magnetar.kafka.partitions.partition import Partition
from magnetar.logs.producers import ProducerStates
from magnetar.records.batch import BatchHeader

_MAX_REFUSED = 10_000
"""Refused batches that are remembered: anybody may send some."""
Key = tuple[bytes, int]


class DueBatches:
    """Those of one broker, by topic id and partition."""

    def __init__(self) -> None:
        self._lately: dict[Key, ProducerStates] = {}
        self._before: dict[Key, ProducerStates] = {}
        self._refused = 0

    def closed(self, partition: Partition) -> None:
        """A partition closes. What is taken back of it after that still counts."""
        log, producers = partition.log, partition.producers
        if producers and (log.high_watermark != log.log_end_offset or producers.await_first):
            key = partition.topic.topic_id, partition.index
            self._take_over(key, producers)
            self._lately[key] = producers

    def refused(self, topic_id: bytes, index: int, batch: BatchHeader) -> None:
        """A batch was refused because its partition is not open."""
        if batch.producer_id >= 0 and self._refused < _MAX_REFUSED:
            self._refused += 1
            key = topic_id, index
            if key not in self._lately:
                states = ProducerStates()
                self._take_over(key, states)
                self._lately[key] = states
            self._lately[key].not_kept(batch)

    def opened(self, partition: Partition) -> None:
        """A partition is open again."""
        self._take_over((partition.topic.topic_id, partition.index), partition.producers)

    def _take_over(self, key: Key, producers: ProducerStates) -> None:
        for kept in (self._lately, self._before):
            states = kept.pop(key, None)
            if states is not None and states is not producers:
                producers.expect(states)

    def forget(self) -> None:
        """Forget what is older than the last time: producers send again within seconds."""
        self._before, self._lately, self._refused = self._lately, {}, 0
