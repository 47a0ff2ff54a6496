"""The input of one run of a compaction, and the port of its worker; `magnetar.ledger.compaction.passes` does it."""

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
    """The input of one run. ``messages`` is how many there are at most; copies before ``first_offset`` are dropped."""

    rules: CompactionRules
    messages: int
    first_offset: int
    now_ms: int
    decided: Decided = UNKNOWN
    """The outcome of the transactions in it."""
    looks_back: bool = False
    """Whether there are copies of transactional entries whose keys no run has noted."""


@dataclass(slots=True)
class Copies:
    """The result of the second pass for some entries."""

    entries: list[NewEntry] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    """The ledger that each of them came from."""
    removed: int = 0
    """Messages that were left out."""
    complaints: list[str] = field(default_factory=list)
    """Entries that are copied as they are because they could not be read."""
    ended: list[int] = field(default_factory=list)
    """The offsets of markers that were omitted: of what they ended, nothing is left."""
    unnoted: bool = False
    """Whether a copy of a transactional entry is among them whose keys no run has noted."""


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
        """Free the run's map; harmless if none was begun."""
