"""A project's tables as files: read without Spark, by Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from magnetar.pipeline.jobs.project import CONF
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError

_WAREHOUSE = "spark.sql.warehouse.dir"


def warehouse(project: ProjectSpec) -> Path:
    """Give where Spark keeps the tables; raise `SpecError` for what is no local directory."""
    path = project.directory / CONF / "spark-defaults.conf"
    for line in path.read_text().splitlines() if path.exists() else ():
        words = line.split(None, 1)
        if len(words) == 2 and words[0] == _WAREHOUSE:
            parts = urlsplit(words[1].strip())
            if parts.scheme in ("", "file"):
                return Path(unquote(parts.path))
            raise SpecError(
                f"{path}: {_WAREHOUSE} is {words[1].strip()}; dead letters are read from local tables only"
            )
    raise SpecError(f"{path}: {_WAREHOUSE} is missing")


def read_rows(project: ProjectSpec, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Give some columns of a whole table; raise `SpecError` before the first run."""
    place = warehouse(project) / table
    if not place.exists():
        raise SpecError(f"there is no table {table} in {place.parent}; 'magnetar pipeline run' makes it")
    if project.table_format == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(str(place)).to_pyarrow_dataset().to_table(columns=list(columns)).to_pylist())
    import pyarrow.dataset as ds

    return list(ds.dataset(files_of(place), format="parquet").to_table(columns=list(columns)).to_pylist())


def files_of(place: Path) -> list[str]:
    """Give a Parquet table's files: those that Spark's file sink committed, where it wrote the table."""
    import json

    log = place / "_spark_metadata"
    if not log.is_dir():
        return [str(each) for each in sorted(place.glob("*.parquet"))]
    numbers = sorted(int(each.name) for each in log.iterdir() if each.name.isdigit())
    compacts = sorted(int(each.stem) for each in log.glob("*.compact"))
    names = [f"{compacts[-1]}.compact"] if compacts else []
    names += [str(number) for number in numbers if not compacts or number > compacts[-1]]
    found: dict[str, None] = {}
    for name in names:
        for line in (log / name).read_text().splitlines()[1:]:
            entry = json.loads(line)
            path = unquote(urlsplit(entry["path"]).path)
            if entry.get("action") == "delete":
                found.pop(path, None)
            else:
                found[path] = None
    return list(found)
