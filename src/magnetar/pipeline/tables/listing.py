"""The files of a table on this machine, whoever wrote it: Magnetar, or Spark's own file sink."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from magnetar.pipeline.tables.directory import in_catalog
from magnetar.pipeline.tables.errors import TableError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_SPARK_S = re.compile(r"part-\d{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-c\d+\..*parquet")


def dataset_of(place: Path | str) -> ds.Dataset:
    """Return the rows of a table on this machine or in a catalog, as of its newest commit."""
    import pyarrow.dataset as ds

    from magnetar.pipeline import tables

    if in_catalog(place) is not None:
        table = tables.open(place, create=False)
        if any(each.deleted for each in table.files()):  # what Arrow's datasets do not know
            return ds.dataset(table.to_arrow())
        system, root = table.data.system
        files = [f"{root}/{each.path}" for each in table.files()]
        return ds.dataset(files, format="parquet", schema=table.schema, filesystem=system)
    place = Path(place)
    kind = tables.format_of(place)
    if kind == "delta":
        from deltalake import DeltaTable
        from pyarrow import fs

        table = tables.open(place, create=False)
        if any(each.deleted for each in table.files()):
            return ds.dataset(table.to_arrow())
        # By its own, which is written in Python, Arrow's threads sometimes abort the process that is about to end.
        local = fs.SubTreeFileSystem(str(place), fs.LocalFileSystem())
        return DeltaTable(str(place)).to_pyarrow_dataset(filesystem=local)
    if kind == "iceberg":
        table = tables.open(place, create=False)
        if any(each.deleted for each in table.files()):
            return ds.dataset(table.to_arrow())
        return ds.dataset(table.urls(), format="parquet", schema=table.schema)
    return ds.dataset(parquet_files(place), format="parquet")


def is_there(place: str) -> bool:
    """Return whether there is a table in a directory of this machine, or of that name in a catalog."""
    from magnetar.pipeline import tables

    if in_catalog(place) is None:
        return Path(place).exists()
    try:
        tables.open(place, create=False)
    except TableError:
        return False
    return True


def parquet_files(place: Path) -> list[str]:
    """Return a Parquet table's files: those that Spark's file sink committed, where it wrote the table."""
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


def remove_uncommitted(place: Path, before: float) -> list[str]:
    """Delete what killed jobs of Spark's left in a table that its file sink writes; give the files' names.

    Spark never reads them, but whoever lists the directory does: rows twice, or half a file. Only for a table that
    nobody writes to, and files that were last written before that time (s, Unix): they belong to no batch any more.
    """
    if not (place / "_spark_metadata").is_dir():
        return []
    committed = {Path(each).name for each in parquet_files(place)}
    if not committed:
        return []  # a log that says nothing is none to go by
    removed = []
    for path in sorted(place.glob("part-*.parquet")):
        if path.name in committed or not _SPARK_S.fullmatch(path.name) or path.stat().st_mtime >= before:
            continue
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        path.unlink()
        removed.append(path.name)
    return removed
