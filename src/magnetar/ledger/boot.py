"""Which boot of the machine this is: after a new one, what was never flushed is gone from the page cache."""

from __future__ import annotations

from pathlib import Path

UNKNOWN_BOOT = "unknown"


def boot_id() -> str:
    """Return what tells one boot of this machine from another; `UNKNOWN_BOOT` where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN_BOOT
