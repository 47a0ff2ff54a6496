"""Settings that a running Kafka broker can change and that have no effect here: accepted, stored and shown.

Runbooks and operators' tools set these on every cluster they keep; a refusal stops them halfway, over a number of
threads that do not exist. Names, kinds, limits and defaults are those of Kafka 4.4.0 (its DescribeConfigs). What would
protect a client or data is not among them (``max.connection.creation.rate``, ``log.flush.interval.ms``,
listeners, principals): that is refused, for to accept it and do nothing would be a lie.
"""

from __future__ import annotations

from magnetar.base.setting import SettingDef
from magnetar.base.values import MAX_INT, MAX_LONG, Kind, Rule, Value, at_least, between

_THREADS = "Kafka's threads; one event loop serves all"
_TIERED = "Kafka's tiered storage; managed.ledger.offload settings are those of this one"
_INDEX = "Kafka's offset index; ledgers have their own"
_CLEANER = "buffers of Kafka's log cleaner; one buffer, of log.cleaner.dedupe.buffer.size, is used"
_BUFFERS = "a coordinator's buffers; facts are appended as they come"
_KERBEROS = "Kerberos, which is not served"
_LOGINS = "a broker's own logins with other brokers; there are none"
_REPLICATION = "replication; there is one replica"
_LEVEL = "the level of a codec; the default is used"

_ROWS: tuple[tuple[str, Kind, Value, Rule | None, str], ...] = (
    ("background.threads", Kind.INT, 10, at_least(1), _THREADS),
    ("compression.gzip.level", Kind.INT, -1, between(-1, 9), _LEVEL),
    ("compression.lz4.level", Kind.INT, 9, between(1, 17), _LEVEL),
    ("compression.zstd.level", Kind.INT, 3, between(-131072, 22), _LEVEL),
    ("follower.fetch.last.tiered.offset.enable", Kind.BOOLEAN, False, None, _TIERED),
    ("follower.replication.throttled.rate", Kind.LONG, MAX_LONG, at_least(0), _REPLICATION),
    ("group.coordinator.cached.buffer.max.bytes", Kind.INT, 1048588, at_least(524288), _BUFFERS),
    ("leader.replication.throttled.rate", Kind.LONG, MAX_LONG, at_least(0), _REPLICATION),
    ("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, None, _CLEANER),
    ("log.cleaner.io.buffer.size", Kind.INT, 524288, at_least(0), _CLEANER),
    ("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, 1.7976931348623157e308, None, _CLEANER),
    ("log.cleaner.threads", Kind.INT, 1, at_least(0), "threads of the log cleaner; there is one"),
    ("log.index.interval.bytes", Kind.INT, 4096, at_least(0), _INDEX),
    ("log.index.size.max.bytes", Kind.INT, 10485760, at_least(4), _INDEX),
    ("log.local.retention.bytes", Kind.LONG, -2, at_least(-2), _TIERED),
    ("log.local.retention.ms", Kind.LONG, -2, at_least(-2), _TIERED),
    ("log.preallocate", Kind.BOOLEAN, False, None, "files of full size from the start; ledgers grow"),
    ("log.remote.copy.lag.bytes", Kind.LONG, -1, at_least(-2), _TIERED),
    ("log.remote.copy.lag.ms", Kind.LONG, 0, at_least(-2), _TIERED),
    ("log.roll.jitter.ms", Kind.LONG, None, None, "a random part of log.roll.ms; none is taken"),
    ("log.segment.delete.delay.ms", Kind.LONG, 60000, at_least(0), "ledgers are removed immediately"),
    ("num.io.threads", Kind.INT, 8, at_least(1), _THREADS),
    ("num.network.threads", Kind.INT, 3, at_least(1), _THREADS),
    ("num.recovery.threads.per.data.dir", Kind.INT, 2, at_least(1), _THREADS),
    ("num.replica.fetchers", Kind.INT, 1, None, _REPLICATION),
    ("remote.fetch.max.wait.ms", Kind.INT, 500, at_least(1), _TIERED),
    ("remote.list.offsets.request.timeout.ms", Kind.LONG, 30000, at_least(1), _TIERED),
    ("remote.log.index.file.cache.total.size.bytes", Kind.LONG, 1 << 30, at_least(1), _TIERED),
    ("remote.log.manager.copier.thread.pool.size", Kind.INT, 10, between(1, MAX_INT), _TIERED),
    ("remote.log.manager.copy.max.bytes.per.second", Kind.LONG, MAX_LONG, at_least(1), _TIERED),
    ("remote.log.manager.expiration.thread.pool.size", Kind.INT, 10, between(1, MAX_INT), _TIERED),
    ("remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, MAX_LONG, at_least(1), _TIERED),
    ("remote.log.manager.follower.thread.pool.size", Kind.INT, 2, between(1, MAX_INT), _TIERED),
    ("remote.log.reader.threads", Kind.INT, 10, at_least(1), _TIERED),
    ("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, MAX_LONG, at_least(0), _REPLICATION),
    ("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", None, _KERBEROS),
    ("sasl.kerberos.min.time.before.relogin", Kind.LONG, 60000, None, _KERBEROS),
    ("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05, None, _KERBEROS),
    ("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8, None, _KERBEROS),
    ("sasl.login.refresh.buffer.seconds", Kind.SHORT, 300, between(0, 3600), _LOGINS),
    ("sasl.login.refresh.min.period.seconds", Kind.SHORT, 60, between(0, 900), _LOGINS),
    ("sasl.login.refresh.window.factor", Kind.DOUBLE, 0.8, None, _LOGINS),
    ("sasl.login.refresh.window.jitter", Kind.DOUBLE, 0.05, None, _LOGINS),
    ("share.coordinator.cached.buffer.max.bytes", Kind.INT, 1048588, at_least(524288), _BUFFERS),
    (
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        None,
        "each transactional batch is verified against its transaction",
    ),
)

WITHOUT_EFFECT: dict[str, SettingDef] = {
    name: SettingDef(
        field=name.replace(".", "_"),
        kind=kind,
        default=default,
        unit="",
        doc=f"Without effect here: {why}.",
        rule=rule,
        dynamic=True,
        kafka=(),
        pulsar=(),
    )
    for name, kind, default, rule, why in _ROWS
}

SHOWN_WHEN_SET = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Quotas of replication, which Kafka's DescribeConfigs knows only where they are set: a tool that has taken its
throttle away looks whether it is gone."""
