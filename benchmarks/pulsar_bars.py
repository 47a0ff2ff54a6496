"""What Pulsar's clients get from us is held against: Pulsar as released; and its entry format against Kafka's."""

from __future__ import annotations

from benchmarks.entry_formats import server_name
from benchmarks.peers.magnetar import MagnetarForPulsar, MagnetarForPulsarOs
from benchmarks.peers.pulsar import Pulsar
from benchmarks.samples import Bar

_PULSAR = Pulsar.name
_KAFKA_FORMAT, _PULSAR_FORMAT = server_name("kafka"), server_name("pulsar")

PULSAR_BARS = (
    *(
        bar
        for ours in (MagnetarForPulsarOs.name, MagnetarForPulsar.name)
        for bar in (
            Bar("Pulsar, produce 1000 B, messages/s", ours, _PULSAR, 1.0, higher_is_better=True),
            Bar("Pulsar, consume 1000 B, messages/s", ours, _PULSAR, 1.0, higher_is_better=True),
            Bar("Pulsar, 1,000 messages/s: to consumer p99, ms", ours, _PULSAR, 1.0),
            Bar("Pulsar, 1,000 messages/s: to receipt p99, ms", ours, _PULSAR, 1.0),
            Bar("Pulsar, memory after the load, MB", ours, _PULSAR, 0.1),
            Bar("Pulsar, memory idle, MB", ours, _PULSAR, 0.1),
        )
    ),
    Bar("Kafka consume 1000 B, records/s", _PULSAR_FORMAT, _KAFKA_FORMAT, 0.5, higher_is_better=True),
    Bar("Kafka produce 1000 B, records/s", _PULSAR_FORMAT, _KAFKA_FORMAT, 0.5, higher_is_better=True),
)
