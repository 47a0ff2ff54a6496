"""The reasons that `why` may name, and the value that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Reason(StrEnum):
    """Why something does not move. The values are stable: scripts may match them."""

    # Partitions.
    NO_TOPIC = "no-topic"
    NO_PARTITION = "no-partition"
    ELSEWHERE = "elsewhere"
    DAMAGED = "damaged"
    DISK_FULL = "disk-full"
    DISK_FAILED = "disk-failed"
    FENCED = "fenced"
    FLUSH_SLOW = "flush-slow"
    UNREADABLE = "unreadable"
    TIER_FAILED = "tiered-storage-failed"
    OPEN_TRANSACTION = "open-transaction"
    NEVER_WRITTEN = "never-written"
    EMPTIED = "emptied"
    IDLE = "idle"
    MOVING = "moving"
    # Groups.
    LOADING = "coordinator-loading"
    NO_GROUP = "no-group"
    NO_MEMBERS = "no-members"
    WAITS_FOR_JOIN = "waits-for-join"
    WAITS_FOR_SYNC = "waits-for-sync"
    OVERTAKEN = "overtaken-by-retention"
    AHEAD = "ahead-of-log"
    MEMBER_SILENT = "member-silent"
    UNASSIGNED = "unassigned"
    NOT_COMMITTING = "not-committing"
    CAUGHT_UP = "caught-up"


@dataclass(frozen=True, slots=True)
class Why:
    """The one reason, in a sentence; what to do about it; and the figures it was read from."""

    about: str
    reason: Reason
    says: str
    next_step: str
    facts: dict[str, str] | None = None

    def with_facts(self, facts: Mapping[str, str]) -> Why:
        """Return the same with the figures that speak for it."""
        return replace(self, facts=dict(facts))


def ago(ms: int) -> str:
    """Return a span of time as people say it: ``340 ms``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    for unit, size, most in (
        ("ms", 1, 1000),
        ("s", 1000, 120_000),
        ("min", 60_000, 7_200_000),
        ("h", 3_600_000, 172_800_000),
    ):
        if ms < most:
            return f"{max(ms, 0) // size} {unit}"
    return f"{ms // 86_400_000} d"
