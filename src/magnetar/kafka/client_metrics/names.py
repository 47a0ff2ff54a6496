"""What can be configured for a subscription of client metrics, with the defaults of Kafka."""

from __future__ import annotations

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
DEFAULTS = {INTERVAL_MS: "300000", MATCH: "", METRICS: ""}
