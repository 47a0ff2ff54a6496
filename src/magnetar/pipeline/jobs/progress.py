"""How far a project is, from its tables or checkpoints and the topics: no Spark is started for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from magnetar.pipeline.jobs.spec import SPARK_SPEC_FILE, ProjectSpec, SpecError, TopicSpec, read_yaml

CHECKPOINTS = "_checkpoints"


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition: the offset that bronze needs next, and what the topic has."""

    partition: int
    next_offset: int
    first: int
    end: int

    @property
    def lag(self) -> int:
        """How many offsets the tables are behind."""
        return max(self.end - self.next_offset, 0)


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """One topic's partitions. ``started`` is False before the first run."""

    topic: str
    started: bool
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)


def storage_of(project: ProjectSpec) -> Path:
    """Return where Spark keeps the checkpoints; raise `SpecError` for what is no local directory."""
    path, url = project.directory / SPARK_SPEC_FILE, _storage(project)
    found = _local(url)
    if found is None:
        raise SpecError(f"{path}: storage is {url}; progress is read from local checkpoints only")
    return found


def local_storage_of(project: ProjectSpec) -> Path | None:
    """Return the same, or None for what is no local directory; raise `SpecError` where Spark's file does not say."""
    return _local(_storage(project))


def _storage(project: ProjectSpec) -> str:
    path = project.directory / SPARK_SPEC_FILE
    content = read_yaml(path)
    found = content.get("storage") if isinstance(content, dict) else None
    if not isinstance(found, str):
        raise SpecError(
            f"{path}: storage must be the URL of a directory, as in 'storage: file:///var/shop/storage'"
        )
    return found


def _local(url: str) -> Path | None:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def committed(project: ProjectSpec, topic: TopicSpec) -> dict[int, int] | None:
    """Return the next offset per partition that bronze needs, or None before the first run."""
    if project.is_direct(topic.bronze):
        from magnetar.pipeline.jobs.tables import direct_table

        table = direct_table(project, topic.bronze)
        found = None if table is None else table.position()
        return {w.partition: at for w, at in found.items() if w.topic == topic.topic} if found else None
    flows = sorted((storage_of(project) / CHECKPOINTS).glob(f"*/*/{topic.bronze}/*/*/commits"))
    done: dict[int, int] | None = None
    for commits in flows:
        numbers = [int(each.name) for each in commits.iterdir() if each.name.isdigit()]
        if numbers:
            done = _offsets(commits.parent / "offsets" / str(max(numbers)), topic.topic)
    return done


def _offsets(path: Path, topic: str) -> dict[int, int]:
    lines = path.read_text().splitlines()
    offsets = json.loads(lines[-1]).get(topic, {})
    return {int(partition): int(offset) for partition, offset in offsets.items()}


def progress(project: ProjectSpec, topic: TopicSpec) -> TopicProgress:
    """Return how far one topic's bronze table is; raise `SpecError` if there is no such topic."""
    from magnetar.pipeline.options import parse_options
    from magnetar.pipeline.plan import Plan

    done = committed(project, topic)
    options = source_options(project, topic)
    try:
        plan = Plan(parse_options(options, streaming=True))
    except (ValueError, OSError) as error:
        raise SpecError(f"topics.{topic.topic}: {error}") from None
    try:
        visible = plan.visible
    finally:
        plan.reader.close()
    rows = []
    for which, each in sorted(visible.items()):
        start = each.first if topic.starting_offsets == "earliest" or done is not None else each.next
        rows.append(
            PartitionProgress(
                which.partition, (done or {}).get(which.partition, start), each.first, each.next
            )
        )
    return TopicProgress(topic.topic, done is not None, tuple(rows))


def source_options(project: ProjectSpec, topic: TopicSpec) -> dict[str, str]:
    """Return the options by which the topic is read."""
    options = {"subscribe": topic.topic, "startingOffsets": topic.starting_offsets, "includeHeaders": "true"}
    if project.data is not None:
        options["path"] = str(project.data)
    if project.bootstrap_servers:
        options["kafka.bootstrap.servers"] = project.bootstrap_servers
    return options
