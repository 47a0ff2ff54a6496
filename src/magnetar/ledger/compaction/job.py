"""What one run of a compaction is about, and who does it; `magnetar.ledger.compaction.passes` is how."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.ledger.port import CompactionRules, NewEntry, StoredEntry
from magnetar.records.aborted import UNKNOWN, Decided

T = TypeVar("T")
InThread = Callable[[Callable[[], T]], asyncio.Future[T]]


@dataclass(frozen=True, slots=True)
class Job:
    """What one run compacts. ``messages`` is how many there are at most; copies before ``first_offset`` are let go."""

    rules: CompactionRules
    messages: int
    first_offset: int
    now_ms: int
    decided: Decided = UNKNOWN
    """What became of the transactions in it."""
    looks_back: bool = False
    """Whether there are copies of what transactions wrote whose keys no run has noted."""


@dataclass(slots=True)
class Copies:
    """What the second pass makes of some entries."""

    entries: list[NewEntry] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """The ledger that each of them came from."""
    removed: int = 0
    """Messages that were left out."""
    complaints: list[str] = field(default_factory=list)
    """What is kept as it is because it could not be read."""
    ended: list[int] = field(default_factory=list)
    """The offsets of markers that were left out: of what they ended, nothing is left."""
    unnoted: bool = False
    """Whether a copy of what a transaction wrote is among them whose keys no run has noted."""


class Worker(ABC):
    """Does the passes of one run after the other; see `Passes`."""

    @abstractmethod
    async def begin(self, job: Job) -> None:
        """Begin a run, with an empty map of keys."""

    @abstractmethod
    async def note(self, entries: Sequence[StoredEntry]) -> int:
        """Do as `Passes.note`."""

    @abstractmethod
    async def looks_back(self) -> bool:
        """Do as `Passes.looks_back`."""

    @abstractmethod
    async def look_back(self, copies: Sequence[StoredEntry]) -> None:
        """Do as `Passes.look_back`."""

    @abstractmethod
    async def copy(self, entries: Sequence[StoredEntry], *, are_copies: bool) -> Copies:
        """Do as `Passes.copy`."""

    @abstractmethod
    async def end(self) -> None:
        """Let go of the run's map; harmless where none was begun."""
