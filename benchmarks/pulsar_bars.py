"""What Pulsar's clients get from us is held against: Pulsar as released."""

from __future__ import annotations

from benchmarks.peers.magnetar import MagnetarForPulsar, MagnetarForPulsarOs
from benchmarks.peers.pulsar import Pulsar
from benchmarks.samples import Bar

_PULSAR = Pulsar.name

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
)
