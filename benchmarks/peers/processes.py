"""What several processes use together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """Return the processor time of processes so far, threads that ended included."""
    found = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found += int(fields[11]) + int(fields[12])
    return found / _TICKS


def rss_mb(pids: Iterable[int]) -> float:
    """Return resident memory, MB of a million bytes."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def family(pid: int) -> list[int]:
    """Return a process and all that it began."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]
