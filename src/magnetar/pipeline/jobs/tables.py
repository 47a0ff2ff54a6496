"""A project's tables as files on disk: for those who want a few rows, or a count, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from magnetar.pipeline.jobs.project import CONF
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError
from magnetar.pipeline.tables.directory import IN_CATALOG, in_catalog
from magnetar.pipeline.tables.glance import NAMESPACE

if TYPE_CHECKING:
    from magnetar.pipeline.tables import Table

_WAREHOUSE = "spark.sql.warehouse.dir"


def place_of(project: ProjectSpec, table: str) -> str:
    """Return where a table is: a directory or URL, or its name in a catalog."""
    if project.catalog:
        return f"{IN_CATALOG}{project.catalog}/{project.namespace or NAMESPACE}.{table}"
    path = project.directory / CONF / "spark-defaults.conf"
    for line in path.read_text().splitlines() if path.exists() else ():
        words = line.split(None, 1)
        if len(words) == 2 and words[0] == _WAREHOUSE:
            place = words[1].strip().rstrip("/")
            parts = urlsplit(place)
            return f"{unquote(parts.path) if parts.scheme in ('', 'file') else place}/{table}"
    raise SpecError(f"{path}: {_WAREHOUSE} is missing")


def direct_table(project: ProjectSpec, table: str) -> Table | None:
    """Open a table that Magnetar writes; None before the first run."""
    from magnetar.pipeline import tables

    try:
        return tables.open(place_of(project, table), project.table_format, create=False)
    except tables.TableError as error:
        if "there is no table" in str(error):
            return None
        raise SpecError(str(error)) from None


def read_rows(project: ProjectSpec, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of a whole table; raise `SpecError` before the first run."""
    from magnetar.pipeline.tables.listing import dataset_of, is_there

    place = place_of(project, table)
    if "://" in place and in_catalog(place) is None:
        raise SpecError(f"{place}: dead letters are read from local tables, and those of catalogs, only")
    if not is_there(place):
        where = project.catalog or Path(place).parent
        raise SpecError(f"there is no table {table} in {where}; 'magnetar pipeline run' makes it")
    return list(dataset_of(place).to_table(columns=list(columns)).to_pylist())
