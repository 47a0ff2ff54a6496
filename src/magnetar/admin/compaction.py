"""Compacting a topic when an operator asks for it, and how that went, in the running broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.admin.errors import Declined
from magnetar.ledger.port import CompactionStatus, ManagedLedger
from magnetar.logs.compaction import rules_of
from magnetar.node.broker import Broker
from magnetar.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class PartitionCompaction:
    """One partition: how its last compaction went since the broker opened it, and what is there now. Sizes in bytes."""

    partition: int
    status: str
    """Pulsar's words: NOT_RUN, RUNNING, SUCCESS or ERROR."""
    error: str
    removed: int
    """Messages that it left out."""
    took_ms: int
    compacted_size: int
    """Of the compacted ledger."""
    waiting_size: int
    """What could be compacted and is not yet."""


@dataclass(frozen=True, slots=True)
class TopicCompaction:
    """How compaction stands with a topic's partitions."""

    topic: str
    replaces: bool
    """Whether what is compacted makes room (``cleanup.policy=compact``), or the history stays as it is."""
    partitions: tuple[PartitionCompaction, ...]

    @property
    def running(self) -> int:
        """How many partitions are not done yet."""
        return sum(each.status == CompactionStatus.RUNNING for each in self.partitions)


def begin(broker: Broker, topic: Topic, logs: Sequence[ManagedLedger]) -> None:
    """Begin to compact; raise `Declined` for the coordinators' own topics, and where one runs already."""
    if topic.internal:
        raise Declined(f"{topic.kafka_name} is the broker's own", "It keeps its own topics small by itself.")
    if any(broker.logs.compactions.is_running(log) for log in logs):
        raise Declined(
            f"a compaction of {topic.kafka_name} runs already",
            f"'magnetar topic compact {topic.kafka_name} --status' tells how it goes.",
        )
    for log in logs:
        broker.logs.compactions.begin(topic, log)


def status(
    broker: Broker, topic: Topic, partitions: Sequence[int], logs: Sequence[ManagedLedger]
) -> TopicCompaction:
    """Tell how the last compactions went."""
    rules = rules_of(topic, broker.settings)
    rows = []
    for partition, log in zip(partitions, logs, strict=True):
        report, (compacted, waiting, _) = log.compaction, log.dirty_bytes(rules)
        rows.append(
            PartitionCompaction(
                partition,
                report.status.value,
                report.error,
                report.removed,
                report.took_ms,
                compacted,
                waiting,
            )
        )
    return TopicCompaction(topic.kafka_name, rules.replaces, tuple(rows))
