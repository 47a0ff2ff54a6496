"""Looks after what goes wrong slowly: a slow journal, a clock that jumps, few descriptors or little memory left,
certificates that end soon.

What each look finds is noted in `magnetar.node.conditions`; what there is to do stands in the words.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from magnetar.auth import Access
from magnetar.figures.figures import Family, FigureTable, labelled
from magnetar.ledger.port import LedgerEngine
from magnetar.node.broker import Broker
from magnetar.node.conditions import Condition, Conditions
from magnetar.serving.listeners import Listener

LOOK_S = 1.0
SLOW_WRITE_S = 1.0
_LASTS_S = 60.0
"""So long a slow write counts after it."""
JUMP_S = 2.0
_JUMP_LASTS_S = 600.0
NEAR = 0.9
_ENDS_SOON_S = 30 * 24 * 3600.0
_ROUNDS_OF_PROCESS = 10
_ROUNDS_OF_CERTIFICATES = 600
_NOT_AFTER = Family(
    "magnetar_certificate_not_after_seconds", "gauge", "When the listener's certificate ends, in Unix time."
)
_GROUP = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


class JournalWatch:
    """Tells whether what makes appends durable takes long."""

    def __init__(self, engine: LedgerEngine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._seen = engine.flushes.count
        self._slowest = 0.0
        self._slow_until = 0.0

    def look(self) -> str:
        """Return what is the matter, empty for nothing."""
        flushes, now = self._engine.flushes, self._clock()
        new, self._seen = flushes.count - self._seen, flushes.count
        recent = islice(reversed(flushes.recent), new)
        slowest = max(max(recent, default=0.0), self._engine.writes_for_s)
        if now >= self._slow_until:
            self._slowest = 0.0
        if slowest >= SLOW_WRITE_S:
            self._slow_until = now + _LASTS_S
            self._slowest = max(self._slowest, slowest)
        if not self._slowest:
            return ""
        return (
            f"a write that producers wait for took {self._slowest:.1f} s within the last minute: the disk is slow, or "
            "shared with what writes a lot (iostat -x tells)"
        )


class ClockWatch:
    """Tells whether the wall clock was moved."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._clock = clock
        self._apart = wall() - clock()
        self._jumped = 0.0
        self._until = 0.0

    def look(self) -> str:
        """Return what is the matter, empty for nothing."""
        now = self._clock()
        apart = self._wall() - now
        jump, self._apart = apart - self._apart, apart
        if abs(jump) >= JUMP_S:
            self._jumped, self._until = jump, now + _JUMP_LASTS_S
        elif now >= self._until:
            self._jumped = 0.0
        if not self._jumped:
            return ""
        way = "forward" if self._jumped > 0 else "back"
        return (
            f"the system's clock was moved {way} by {abs(self._jumped):.0f} s within the last ten minutes: retention, "
            "TTLs, tokens and times of messages go by it (chronyc tracking tells, or the machine slept)"
        )


def descriptors() -> str:
    """Return what is the matter with file descriptors, empty for nothing; not on the loop, for there may be many."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    if limit == resource.RLIM_INFINITY or used < limit * NEAR:
        return ""
    return (
        f"{used:,} of {limit:,} file descriptors are used: allow more (ulimit -n, LimitNOFILE), or bound "
        "max.connections"
    )


def memory() -> str:
    """Return what is the matter with the process's memory, empty for nothing. A container's bound counts."""
    limit = memory_limit()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return ""
    used = pages * os.sysconf("SC_PAGE_SIZE")
    if limit is None or used < limit * NEAR:
        return ""
    return f"the process holds {used:,} of the {limit:,} bytes that its control group allows, past which it is killed"


def memory_limit(group: Path = _GROUP, groups: Path = _GROUPS) -> int | None:
    """Return what the process's control group (v2) allows, in bytes; None for no bound, or where there is none."""
    try:
        place = next(line[3:] for line in group.read_text().splitlines() if line.startswith("0::"))
        text = (groups / place.lstrip("/") / "memory.max").read_text().strip()
    except (OSError, StopIteration):
        return None
    return int(text) if text.isdigit() else None


class Vitals:
    """All of these, of one broker; once a second, and what asks the system in a thread, less often."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._journal = JournalWatch(broker.engine)
        self._clock = ClockWatch()
        self._rounds = 0
        self._ends: dict[str, float] = {}

    def start(self) -> None:
        """Begin to look."""
        self._broker.background.repeat("looking after the process and its disk", lambda: LOOK_S, self.look)
        self._broker.figures.sources.append(self.figures)

    async def look(self) -> None:
        """Look once."""
        conditions = self._broker.health.conditions
        conditions.note(Condition.JOURNAL, self._journal.look())
        conditions.note(Condition.CLOCK, self._clock.look())
        if self._rounds % _ROUNDS_OF_PROCESS == 0:
            conditions.note(Condition.DESCRIPTORS, await asyncio.to_thread(descriptors))
            conditions.note(Condition.MEMORY, await asyncio.to_thread(memory) or self._clients_memory())
        if self._rounds % _ROUNDS_OF_CERTIFICATES == 0:
            await self._look_at_certificates(conditions)
        self._rounds += 1

    def _clients_memory(self) -> str:
        budget = self._broker.serving.memory
        if budget.held_bytes < budget.limit_bytes * NEAR:
            return ""
        return (
            f"clients make the broker hold {budget.held_bytes:,} of the {budget.limit_bytes:,} bytes that they may "
            "(memory.requests.bytes): more from them waits"
        )

    async def _look_at_certificates(self, conditions: Conditions) -> None:
        ends: dict[str, float] = {}
        for listener in self._broker.serving.listeners:
            end = await end_of(listener)
            if end is not None:
                ends[f"{listener.name} {listener.bind}"] = end
        self._ends = ends
        conditions.note(Condition.CERTIFICATE, ending_soon(ends, time.time()))

    def figures(self, access: Access | None) -> Iterator[FigureTable | None]:
        """Yield when certificates end; see `magnetar.figures.figures.Source`."""
        rows = [(labelled(listener=name), end) for name, end in self._ends.items()]
        yield FigureTable((_NOT_AFTER,), rows)


async def end_of(listener: Listener) -> float | None:
    """Return when a listener's certificate ends, in Unix time; None where it has none."""
    if listener.context is None:
        return None
    from magnetar.auth.tls import ServerContext

    if not isinstance(listener.context, ServerContext):
        return None
    return await asyncio.to_thread(listener.context.ends_at)


def ending_soon(ends: dict[str, float], now: float) -> str:
    """Return what is the matter with certificates, by listener their ends (Unix time); empty for nothing."""
    soon = [(end, name) for name, end in ends.items() if end - now < _ENDS_SOON_S]
    if not soon:
        return ""
    end, name = min(soon)
    days = (end - now) / 86400
    when = f"ends in {days:.0f} days" if days >= 0 else f"ended {-days:.0f} days ago"
    return (
        f"the certificate of listener {name} {when}: put a new one in its place, it is read without a restart"
    )
