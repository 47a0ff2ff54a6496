"""How far a project's tables are, and what its last runs did."""

from __future__ import annotations

import time
from dataclasses import dataclass

from magnetar.pipeline.jobs.progress import TopicProgress, progress
from magnetar.pipeline.jobs.report import reports
from magnetar.pipeline.jobs.run import RUNS
from magnetar.pipeline.jobs.spec import ProjectSpec

_MAX_RUNS = 10


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run, as its report has it."""

    started: str
    seconds: float
    records: int
    dead_letters: int
    lag: int


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    """A project now."""

    directory: str
    lag: int
    topics: tuple[TopicProgress, ...]
    runs: tuple[PastRun, ...]


def status(project: ProjectSpec) -> ProjectStatus:
    """Return how far the tables are; raise `SpecError` if a topic is gone."""
    topics = tuple(progress(project, topic) for topic in project.topics.values())
    runs = [
        PastRun(
            time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(each["started_ms"] / 1000)),
            each["seconds"], each["records"], each["dead_letters"], each["lag"],
        )
        for each in reports(project.directory / RUNS)[-_MAX_RUNS:]
    ]  # fmt: skip
    return ProjectStatus(str(project.directory), sum(each.lag for each in topics), topics, tuple(runs))
