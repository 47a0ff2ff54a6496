"""Whether a run would find anything to do: asked of the tables and topics themselves, before Spark is started.

A run that came to its end leaves a note: what the project's files were, and which version each table had. If all that
is so still, and no topic has a record that its bronze table lacks, another run would change nothing. What files of
their owner's read is not known, so this is for projects whose transformations are as they were made; and Spark's own
checkpoints say nothing of a topic's history, so bronze must be a table that Magnetar writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import magnetar
from magnetar.pipeline.jobs.code import code_of
from magnetar.pipeline.jobs.outcome import TableReport
from magnetar.pipeline.jobs.progress import source_options
from magnetar.pipeline.jobs.project import CONF
from magnetar.pipeline.jobs.spec import SPARK_SPEC_FILE, SPEC_FILE, ProjectSpec, SpecError, TopicSpec
from magnetar.pipeline.jobs.tables import direct_table, place_of

if TYPE_CHECKING:
    from magnetar.pipeline.tables import Table

_NOTE = ".complete.json"
_CODE = "transformations"
_FOLDERS = (_CODE, CONF, "schemas")


def note_complete(project: ProjectSpec, runs: Path, tables: Sequence[TableReport]) -> None:
    """Note that a run came to its end with these tables."""
    try:
        if not _is_as_made(project):
            return
        content = {
            "files": _files(project),
            "versions": _versions(project),
            "tables": [[each.table, each.rows, each.files] for each in tables],
        }
    except (OSError, ValueError, SpecError):
        return  # the next run looks for itself
    (runs / _NOTE).write_text(json.dumps(content))


def forget_complete(runs: Path) -> None:
    """Take the note away: a run begins that may not come to its end."""
    (runs / _NOTE).unlink(missing_ok=True)


def tables_if_nothing_new(project: ProjectSpec, runs: Path) -> tuple[TableReport, ...] | None:
    """Return the tables as the last run left them if another one would change none of them; otherwise None."""
    try:
        note: dict[str, Any] = json.loads((runs / _NOTE).read_text())
        if note["files"] != _files(project) or not _is_as_made(project):
            return None
        if note["versions"] != _versions(project):
            return None
        if not all(_has_all(project, topic) for topic in project.topics.values()):
            return None
        return tuple(TableReport(name, rows, 0, files, 0.0) for name, rows, files in note["tables"])
    except (OSError, ValueError, KeyError, TypeError, SpecError):
        return None  # the run itself says what is wrong


def _has_all(project: ProjectSpec, topic: TopicSpec) -> bool:
    """Return whether bronze has all that the topic has now, and the topic the history that bronze read of it."""
    from magnetar.pipeline import tables
    from magnetar.pipeline.plan import DataLost

    table = direct_table(project, topic.bronze) if project.is_direct(topic.bronze) else None
    if table is None:
        return False
    try:
        ranges, _ = tables.missing(topic.topic, table, options=_options(project, topic))
    except (DataLost, tables.TableError):
        return False
    return not ranges and topic.topic in table.topics()


def _options(project: ProjectSpec, topic: TopicSpec) -> dict[str, str]:
    """Return the options of a batch; what is there from the beginning is missing in a table that has nothing."""
    given = source_options(project, topic)
    return {name: value for name, value in given.items() if name not in ("subscribe", "startingOffsets")}


def _is_as_made(project: ProjectSpec) -> bool:
    """Return whether all code is that which `create` makes of the project's topics."""
    made = {code_of(project, topic) for topic in project.topics.values()}
    found = {path.read_text() for path in _paths(project, _CODE)}
    return found == made


def _files(project: ProjectSpec) -> str:
    """Return a digest of all that says what a run does."""
    digest = sha256(magnetar.__version__.encode())
    own = [project.directory / SPEC_FILE, project.directory / SPARK_SPEC_FILE]
    for path in [*own, *(path for name in _FOLDERS for path in _paths(project, name))]:
        digest.update(str(path.relative_to(project.directory)).encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _paths(project: ProjectSpec, folder: str) -> list[Path]:
    found = (project.directory / folder).rglob("*")
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def _versions(project: ProjectSpec) -> dict[str, int]:
    """Return what changes when somebody changes a table: its version, or when its directory was written to."""
    found = {}
    for name in (name for topic in project.topics.values() for name in topic.tables):
        if project.is_direct(name):
            table: Table | None = direct_table(project, name)
            found[name] = -1 if table is None else table.version
        else:
            place = place_of(project, name)
            if "://" in place:
                raise SpecError(f"{place} is no directory of this machine")
            found[name] = Path(place).stat().st_mtime_ns
    return found
