"""What can be set for one topic: Kafka's names, types, defaults and limits, and whether it takes effect here.

`CONFIGS` is the only table. A configuration that has no meaning on this storage is still stored and shown, since
Kafka tools set it and look for it. The value in force comes from the topic, otherwise from the broker setting named
``setting``, otherwise from ``default``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from magnetar.base.errors import InvalidConfig
from magnetar.base.values import MAX_LONG, Kind, Rule, Value, at_least, between, one_of, parse

ENTRY_FORMATS = ("kafka", "mixed_kafka", "pulsar")
MIGRATION = "magnetar-migration-"
"""The prefix of the transactional ids of migrations; no other producer uses it."""
COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


@dataclass(frozen=True, slots=True)
class TopicConfigDef:
    """One configuration of a topic."""

    name: str
    kind: Kind
    default: Value
    doc: str
    rule: Rule | None = None
    setting: str | None = None
    """The field of `Settings` that topics without a value of their own follow."""
    synonym: str | None = None
    """Kafka's broker-wide name of the same thing."""
    honoured: bool = True
    """Whether it has an effect in this broker."""

    def parse(self, text: str | None) -> Value:
        """Return the value that ``text`` stands for, or raise `InvalidConfig`."""
        if text is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {self.name}")
        return parse(self.name, self.kind, text, self.rule)


def _kept(
    name: str, kind: Kind, default: Value, synonym: str | None, doc: str, rule: Rule | None = None
) -> TopicConfigDef:
    return TopicConfigDef(name, kind, default, doc, rule, None, synonym, honoured=False)


_DEFINITIONS = (
    TopicConfigDef(
        "cleanup.policy", Kind.LIST, ("delete",),
        "What happens to old records: delete lets go of whole ledgers by time and size; compact keeps the newest "
        "record of every key; both do both.",
        one_of("compact", "delete"), "log_cleanup_policy", "log.cleanup.policy",
    ),
    TopicConfigDef(
        "compaction.threshold", Kind.LONG, 0,
        "Pulsar's compactionThreshold: bytes behind the compaction horizon at which the topic is compacted, its "
        "history kept; 0 for only when asked. Topics with cleanup.policy=compact have min.cleanable.dirty.ratio too.",
        at_least(0), "broker_service_compaction_threshold_in_bytes", "brokerServiceCompactionThresholdInBytes",
    ),
    TopicConfigDef(
        "compression.type", Kind.STRING, "producer",
        "Codec of what is stored; producer keeps what the producer chose.",
        one_of(*COMPRESSIONS), "compression_type", "compression.type",
    ),
    TopicConfigDef(
        "delete.retention.ms", Kind.LONG, 86400000,
        "How long, in ms, compaction keeps deletions: records with a null value.",
        at_least(0), "log_cleaner_delete_retention_ms", "log.cleaner.delete.retention.ms",
    ),
    TopicConfigDef(
        "entry.format", Kind.STRING, "kafka",
        "How batches of Kafka producers are stored from now on: kafka (as sent), mixed_kafka (with corrected "
        "relative offsets), pulsar (as Pulsar messages). Every reader reads all of them.",
        one_of(*ENTRY_FORMATS), "entry_format", "entryFormat",
    ),
    TopicConfigDef(
        "errors.deadletterqueue.group.enable", Kind.BOOLEAN, False,
        "Whether the topic may be the dead-letter queue of share groups (KIP-1191).",
    ),
    TopicConfigDef(
        "flush.messages", Kind.LONG, MAX_LONG,
        "1 makes every append of the topic durable before it is acknowledged, whatever the broker's flush policy.",
        at_least(1), "log_flush_interval_messages", "log.flush.interval.messages",
    ),
    TopicConfigDef(
        "max.compaction.lag.ms", Kind.LONG, MAX_LONG,
        "Longest time, in ms, that a record stays uncompacted; ledgers are sealed for it.",
        at_least(1), "log_cleaner_max_compaction_lag_ms", "log.cleaner.max.compaction.lag.ms",
    ),
    TopicConfigDef(
        "max.message.bytes", Kind.INT, 1048588,
        "The largest record batch that producers may send, in bytes, as sent and as compression.type has it stored.",
        at_least(0), "message_max_bytes", "message.max.bytes",
    ),
    TopicConfigDef(
        "message.timestamp.after.max.ms", Kind.LONG, 3600000,
        "How far, in ms, a record's create time may lie after the broker's clock.",
        at_least(0), "log_message_timestamp_after_max_ms", "log.message.timestamp.after.max.ms",
    ),
    TopicConfigDef(
        "message.timestamp.before.max.ms", Kind.LONG, MAX_LONG,
        "How far, in ms, a record's create time may lie before the broker's clock.",
        at_least(0), "log_message_timestamp_before_max_ms", "log.message.timestamp.before.max.ms",
    ),
    TopicConfigDef(
        "message.timestamp.type", Kind.STRING, "CreateTime",
        "Whether a record's timestamp is the producer's or the time of the append.",
        one_of("CreateTime", "LogAppendTime"), "log_message_timestamp_type", "log.message.timestamp.type",
    ),
    TopicConfigDef(
        "migration.writer", Kind.STRING, "",
        "Set while another cluster leads the topic: only requests of this transactional id write it, each batch "
        "at its offset there; all others get a retriable error. 'magnetar migrate from-kafka' sets and unsets it.",
        Rule(f"Value must be empty, or begin with {MIGRATION}", lambda v: not v or str(v).startswith(MIGRATION)),
    ),
    TopicConfigDef(
        "min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5,
        "Share of bytes in sealed ledgers not yet compacted above which compaction begins.",
        between(0, 1), "log_cleaner_min_cleanable_ratio", "log.cleaner.min.cleanable.ratio",
    ),
    TopicConfigDef(
        "min.compaction.lag.ms", Kind.LONG, 0,
        "Shortest time, in ms, that a record stays uncompacted.",
        at_least(0), "log_cleaner_min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms",
    ),
    TopicConfigDef(
        "min.insync.replicas", Kind.INT, 1,
        "Replicas that must have a record before acks=all is answered; as in Kafka, no more than there are: one.",
        at_least(1), "min_insync_replicas", "min.insync.replicas", honoured=False,
    ),
    TopicConfigDef(
        "local.retention.bytes", Kind.LONG, -2,
        "With remote.storage.enable: size, in bytes, past which a partition's oldest offloaded ledgers lie in tiered "
        "storage alone; -2 for retention.bytes, -1 for no bound.",
        at_least(-2), None, "log.local.retention.bytes",
    ),
    TopicConfigDef(
        "local.retention.ms", Kind.LONG, -2,
        "With remote.storage.enable: age of its newest record, in ms, at which an offloaded ledger lies in tiered "
        "storage alone; -2 for retention.ms, -1 for no bound.",
        at_least(-2), None, "log.local.retention.ms",
    ),
    TopicConfigDef(
        "remote.log.copy.disable", Kind.BOOLEAN, False,
        "Whether no more ledgers are offloaded; what is in tiered storage is read as before.",
    ),
    TopicConfigDef(
        "remote.storage.enable", Kind.BOOLEAN, False,
        "Whether each ledger that is full is offloaded, to where the broker, the namespace or the topic says. Set to "
        "false again, what is in tiered storage is read as before.",
    ),
    TopicConfigDef(
        "retention.bytes", Kind.LONG, -1,
        "Size of a partition, in bytes, past which its oldest ledgers go; -1 for no bound.",
        at_least(-1), "log_retention_bytes", "log.retention.bytes",
    ),
    TopicConfigDef(
        "retention.ms", Kind.LONG, 604800000,
        "Age of its newest record, in ms, at which a ledger goes; -1 for no bound.",
        at_least(-1), "log_retention_ms", "log.retention.ms",
    ),
    TopicConfigDef(
        "segment.bytes", Kind.INT, 1 << 30,
        "Size in bytes at which a ledger is sealed and the next one begun.",
        at_least(1048576), "log_segment_bytes", "log.segment.bytes",
    ),
    TopicConfigDef(
        "segment.ms", Kind.LONG, 604800000,
        "Age in ms at which a ledger is sealed and the next one begun, so that retention can let go of it.",
        at_least(1), "log_roll_ms", "log.roll.ms",
    ),
    _kept("compression.gzip.level", Kind.INT, -1, "compression.gzip.level", "Level of gzip; the default is used.",
          Rule("Value must be between 1 and 9, or -1", lambda v: isinstance(v, int) and (1 <= v <= 9 or v == -1))),
    _kept("compression.lz4.level", Kind.INT, 9, "compression.lz4.level", "Level of lz4; the default is used.",
          between(1, 17)),
    _kept("compression.zstd.level", Kind.INT, 3, "compression.zstd.level", "Level of zstd; the default is used.",
          between(-131072, 22)),
    _kept("file.delete.delay.ms", Kind.LONG, 60000, "log.segment.delete.delay.ms",
          "Delay before a file is removed; ledgers are removed immediately.", at_least(0)),
    _kept("flush.ms", Kind.LONG, MAX_LONG, None,
          "Kafka's time between flushes; here the flush policy of the broker and the namespace rules.", at_least(0)),
    _kept("follower.replication.throttled.replicas", Kind.LIST, (), None, "Throttled followers; there are none."),
    _kept("index.interval.bytes", Kind.INT, 4096, "log.index.interval.bytes",
          "Bytes between two entries of an offset index in Kafka; ledgers have their own.", at_least(0)),
    _kept("leader.replication.throttled.replicas", Kind.LIST, (), None, "Throttled leaders; nothing replicates."),
    _kept("preallocate", Kind.BOOLEAN, False, "log.preallocate", "Whether files are allocated in full size."),
    _kept("remote.log.delete.on.disable", Kind.BOOLEAN, False, None,
          "Whether remote.storage.enable=false deletes what is in tiered storage; DeleteRecords and retention do that.",
          Rule("What is in tiered storage stays readable, so it must be false", lambda value: value is False)),
    _kept("segment.index.bytes", Kind.INT, 10485760, "log.index.size.max.bytes",
          "Size of an offset index in Kafka; ledgers have their own.", at_least(4)),
    _kept("segment.jitter.ms", Kind.LONG, 0, None, "Random part taken from segment.ms; none is taken.", at_least(0)),
    _kept("unclean.leader.election.enable", Kind.BOOLEAN, False, "unclean.leader.election.enable",
          "Whether a replica that lags may lead; there is one replica."),
)  # fmt: skip

CONFIGS: dict[str, TopicConfigDef] = {each.name: each for each in sorted(_DEFINITIONS, key=lambda d: d.name)}


def definition(name: str) -> TopicConfigDef:
    """Return the definition of a topic configuration, or raise `InvalidConfig`."""
    found = CONFIGS.get(name)
    if found is None:
        raise InvalidConfig(f"Unknown topic config name: {name}")
    return found


def check_overrides(overrides: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return validated overrides as they are stored, or raise `InvalidConfig` for the first wrong one."""
    checked: dict[str, str] = {}
    for name, text in overrides:
        definition(name).parse(text)
        assert text is not None
        checked[name] = text
    return checked


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configuration in force for one topic, ready to use. Sizes in bytes, times in ms."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compaction_threshold: int = 0
    compression_type: str = "producer"
    delete_retention_ms: int = 86400000
    entry_format: str = "kafka"
    errors_deadletterqueue_group_enable: bool = False
    flush_messages: int = MAX_LONG
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = 1048588
    message_timestamp_after_max_ms: int = 3600000
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_type: str = "CreateTime"
    migration_writer: str = ""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    remote_log_copy_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604800000
    segment_bytes: int = 1 << 30
    segment_ms: int = 604800000
    # Derived from the fields above, since each batch needs them.
    compacted: bool = field(init=False, repr=False, compare=False)
    """Whether the topic retains the last record of each key; then every Kafka record must have a key."""
    is_migrating: bool = field(init=False, repr=False, compare=False)
    """Whether another cluster still leads the topic, and what is written there is copied here."""
    log_append_time: bool = field(init=False, repr=False, compare=False)
    """Whether the broker's clock sets the timestamps."""

    def __post_init__(self) -> None:
        for name, value in (
            ("compacted", "compact" in self.cleanup_policy),
            ("is_migrating", self.migration_writer != ""),
            ("log_append_time", self.message_timestamp_type == "LogAppendTime"),
        ):
            object.__setattr__(self, name, value)

    @property
    def local_retention(self) -> tuple[int, int]:
        """The age in ms and the size past which offloaded data do not stay here, too; -1 for no bound."""
        own_ms, own_bytes = self.local_retention_ms, self.local_retention_bytes
        return (
            self.retention_ms if own_ms == -2 else own_ms,
            self.retention_bytes if own_bytes == -2 else own_bytes,
        )


def check_together(config: TopicConfig) -> None:
    """Raise `InvalidConfig` for values that are valid on their own and contradict each other."""
    least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if least > most:
        message = (
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
        raise InvalidConfig(message)
    if not config.remote_storage_enable:
        return
    if config.compacted:
        raise InvalidConfig("Remote log storage is unsupported for the compacted topics")
    for unit, own, all_of_it in (
        ("ms", config.local_retention_ms, config.retention_ms),
        ("bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        if all_of_it != -1 and (own == -1 or own > all_of_it):
            raise InvalidConfig(
                f"Invalid value {own} for configuration local.retention.{unit}: Value must not be more than "
                f"property: retention.{unit} value {all_of_it}"
            )


HONOURED = tuple(each for each in CONFIGS.values() if each.honoured)
assert {each.name.replace(".", "_") for each in HONOURED} == {
    each.name for each in fields(TopicConfig) if each.init
}
