"""How a topic is compacted: Kafka's way where its cleanup policy says compact, else Pulsar's, which keeps history."""

from __future__ import annotations

from magnetar.broker.settings import Settings
from magnetar.broker.topic import Topic
from magnetar.ledger.port import CompactionRules, ManagedLedger


def rules_of(topic: Topic, settings: Settings) -> CompactionRules:
    """Give the rules that are in force for a topic."""
    config = topic.config
    null_keys, buffer_bytes = (
        settings.topic_compaction_retain_null_key,
        settings.log_cleaner_dedupe_buffer_size,
    )
    if not config.compacted:
        return CompactionRules(null_keys=null_keys, buffer_bytes=buffer_bytes)
    return CompactionRules(
        replaces=True,
        tombstones_ms=config.delete_retention_ms,
        null_keys=null_keys,
        least_age_ms=config.min_compaction_lag_ms,
        buffer_bytes=buffer_bytes,
    )


def is_due(topic: Topic, log: ManagedLedger, rules: CompactionRules, now_ms: int) -> bool:
    """Tell whether Kafka's cleaner would take the log now: enough of it is dirty, or something is for too long."""
    config = topic.config
    clean, dirty, since_ms = log.dirty_bytes(rules)
    if not dirty:
        return False
    overdue = now_ms - since_ms > config.max_compaction_lag_ms
    return overdue or dirty / (clean + dirty) >= config.min_cleanable_dirty_ratio
