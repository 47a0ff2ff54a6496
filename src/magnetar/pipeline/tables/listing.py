"""The files of a table on this machine, whoever wrote it: Magnetar, or Spark's own file sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def dataset_of(place: Path) -> ds.Dataset:
    """Give a table's rows, as of its newest commit."""
    import pyarrow.dataset as ds

    from magnetar.pipeline import tables

    kind = tables.format_of(place)
    if kind == "delta":
        from deltalake import DeltaTable
        from pyarrow import fs

        # By its own, which is written in Python, Arrow's threads sometimes abort the process that is about to end.
        local = fs.SubTreeFileSystem(str(place), fs.LocalFileSystem())
        return DeltaTable(str(place)).to_pyarrow_dataset(filesystem=local)
    if kind == "iceberg":
        table = tables.open(place, create=False)
        return ds.dataset(table.urls(), format="parquet", schema=table.schema)
    return ds.dataset(parquet_files(place), format="parquet")


def parquet_files(place: Path) -> list[str]:
    """Give a Parquet table's files: those that Spark's file sink committed, where it wrote the table."""
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
