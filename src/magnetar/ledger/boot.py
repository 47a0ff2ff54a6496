"""The boot of the machine: after a new one, what was never flushed is gone from the page cache."""

from __future__ import annotations

from pathlib import Path

UNKNOWN_BOOT = "unknown"


def boot_id() -> str:
    """Return an id of this boot of the machine; `UNKNOWN_BOOT` if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return UNKNOWN_BOOT
