"""What a run did, as values: for its report, its picture and the command line."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.pipeline.jobs.progress import TopicProgress


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """One thing that Spark told: ``table`` is empty where it is about the whole run."""

    seconds: float
    table: str
    state: str
    message: str


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table after the run: ``added`` may be negative for current state."""

    table: str
    rows: int
    added: int
    files: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run: what was read, what the tables have, and how far they are behind the topics now."""

    started_ms: int
    seconds: float
    records: int
    records_per_s: float
    dead_letters: int
    tables: tuple[TableReport, ...]
    topics: tuple[TopicProgress, ...]
    lag: int
    directory: str
    """Where its report is; empty of a run that had nothing to do."""
    moved: tuple[str, ...] = ()
    """Fields whose types their columns cannot take, and what becomes of them."""
