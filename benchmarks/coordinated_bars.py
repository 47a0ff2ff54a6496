"""What transactions, groups, TLS and ACLs are held against: Kafka, and ourselves without ACLs."""

from __future__ import annotations

from benchmarks.logins import MagnetarGuarded
from benchmarks.peers.kafka import Kafka, KafkaFlushing
from benchmarks.peers.magnetar import Magnetar, MagnetarOs
from benchmarks.samples import Bar

_OS, _ALWAYS, _KAFKA, _FLUSHING = MagnetarOs.name, Magnetar.name, Kafka.name, KafkaFlushing.name

COORDINATED_BARS = (
    *(
        Bar(f"transactions of 100 records, {producers}, transactions/s", ours, against, 1.0, higher_is_better=True)
        for producers in ("a producer", "4 producers")
        for ours, against in ((_OS, _KAFKA), (_ALWAYS, _KAFKA), (_ALWAYS, _FLUSHING))
    ),
    *(
        Bar(f"group of 100, 1,000 partitions, {protocol}: one {what}, s", _ALWAYS, _KAFKA, 1.0)
        for protocol in ("classic", "consumer")
        for what in ("joins", "leaves")
    ),
    Bar("10,000 members' heartbeats, % of a core", _ALWAYS, None, 25),
    Bar("a million committed offsets: restart to serving, s", _ALWAYS, None, 2),
    Bar("share group, 8 consumers, records/s", _OS, _KAFKA, 1.0, higher_is_better=True),
    Bar("TLS, produce 1000 B, records/s", _OS, _KAFKA, 0.8, higher_is_better=True),
    Bar("TLS, consume 1000 B, records/s", _OS, _KAFKA, 0.8, higher_is_better=True),
    Bar("produce of one record, broker us/request", MagnetarGuarded.name, _OS, 1.03),
)  # fmt: skip
