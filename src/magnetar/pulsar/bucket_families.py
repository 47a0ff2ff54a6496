"""Names of what Pulsar counts of a topic's entries in the last minute (`magnetar.figures.buckets`)."""

from __future__ import annotations

from magnetar.figures.figures import Family

_LATENCY, _SIZE = "pulsar_storage_write_latency_", "pulsar_entry_size_"
FAMILIES = (
    *(
        Family(f"{_LATENCY}{name}", "gauge", "Entries of a minute that took so many ms to write.")
        for name in (*(f"le_{ms}" for ms in ("0_5", 1, 5, 10, 20, 50, 100, 200, 1000)), "overflow")
    ),
    Family(f"{_LATENCY}count", "untyped", "Entries of a minute that were written."),
    Family(f"{_LATENCY}sum", "untyped", "How long that took, in all, ms."),
    *(
        Family(f"{_SIZE}{name}", "gauge", "Entries of a minute that have so many bytes.")
        for name in (
            *(f"le_{size}" for size in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb")),
            "le_overflow",
        )
    ),
    Family(f"{_SIZE}count", "untyped", "Entries of a minute that came in."),
    Family(f"{_SIZE}sum", "untyped", "Bytes of the same."),
    Family("pulsar_storage_write_rate", "gauge", "Entries that came in per second."),
)
"""What ``EntryBuckets.last_minute`` returns, in its order."""
