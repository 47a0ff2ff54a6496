"""The passes of a run: which of a project's tables one graph brings up, so that each sees what the one before it wrote.

Spark runs the streams of a graph side by side once their tables exist, so one graph would leave decoded a run behind
bronze. Hence bronze first, then what is made of it, then everything else. A selection of Spark's own would do for its
tables, but leaves out every sink; so each pass registers only what it is about.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.progress import CHECKPOINTS, storage_of
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError
from magnetar.pipeline.jobs.tables import place_of
from magnetar.pipeline.tables.directory import in_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Pass:
    """One graph: the tables that are in it (None: all but ``without``), and those of them to make anew."""

    tables: Collection[str] | None = None
    without: Collection[str] = ()
    anew: Collection[str] = ()

    def has(self, table: str) -> bool:
        """Return whether a table belongs to this pass."""
        name = table.rsplit(".", 1)[-1].strip("`")
        return name not in self.without if self.tables is None else name in self.tables


def passes(
    project: ProjectSpec, refresh: Sequence[str], full_refresh: Sequence[str], full_refresh_all: bool, *, dry: bool
) -> Iterator[Pass]:  # fmt: skip
    """Yield the passes of a run; with a selection only what was selected."""
    chosen = [*refresh, *full_refresh]
    if dry:
        yield Pass()
    elif chosen:
        direct = [name for name in chosen if project.is_direct(name)]
        by_spark = [name for name in chosen if name not in direct]
        if direct:
            yield Pass(direct)
        if by_spark:
            yield Pass(by_spark, anew=[name for name in full_refresh if name in by_spark])
    else:
        topics = project.topics.values()
        bronze = [topic.bronze for topic in topics]
        made = [name for topic in topics for name in (topic.decoded, topic.dead_letters)]
        first = [name for name in made if project.is_direct(name)] or [topic.decoded for topic in topics]
        yield Pass(bronze)
        yield Pass(first)
        yield Pass(without=[*bronze, *first])


def registry_of(spark: SparkSession, graph: str, which: Pass) -> Any:
    """Return where the project's files register what they define; what does not belong to the pass is passed over."""
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

    class PassRegistry(SparkConnectGraphElementRegistry):  # type: ignore[misc]
        is_empty = True
        """Whether nothing of the project belongs to the pass: Spark fails a run without tables."""

        def register_output(self, output: Any) -> None:
            if which.has(output.name):
                self.is_empty = False
                super().register_output(output)

        def register_flow(self, flow: Any) -> None:
            if which.has(flow.target):
                super().register_flow(flow)

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            if which.tables is None:
                self.is_empty = False
                super().register_sql(sql_text, file_path)

    return PassRegistry(spark, graph)


def empty(project: ProjectSpec, tables: Sequence[str]) -> None:
    """Delete the tables that Magnetar writes among these, and their checkpoints: what Spark does for its own."""
    for name in (each for each in tables if project.is_direct(each)):
        place = place_of(project, name)
        named = in_catalog(place)
        if named is not None:
            _drop(*named)
        elif "://" in place:
            raise SpecError(f"{place}: delete this table yourself, and its checkpoint, to begin anew")
        else:
            if project.table_format == "iceberg":
                _forget_iceberg(Path(place))
            shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(storage_of(project) / CHECKPOINTS / name, ignore_errors=True)


def _drop(catalog: str, name: str) -> None:
    """Drop a table of a catalog, with its files where the catalog deletes such."""
    from magnetar.pipeline.tables.iceberg import drop

    drop(catalog, name)


def _forget_iceberg(place: Path) -> None:
    """Take a table out of the embedded catalog."""
    from magnetar.pipeline.tables.iceberg import drop_embedded

    drop_embedded(place)
