"""The embedded format: Parquet files and a commit log that plain Spark reads too.

    table/
      part-<topic>-<partition>-<offset>-<attempt>-<id>.parquet    data
      columns-<id>.parquet                  no rows: the table's columns; readers look at it first
      _spark_metadata/<version>.compact     one file per commit; it lists the whole table
      _magnetar/                            the writer's lock and notes

``_spark_metadata`` is the log of Spark's own file sink, so ``spark.read.parquet(table)`` sees the files of the newest
commit and no others. Each version is a file of its own, complete, made under another name, flushed and then linked
to its place: that is the commit. Linking fails if the version is there already, so one of two writers wins.

A version holds ``v1`` and one line of JSON per file. The first line is that of the columns; Spark ignores its member
``magnetar``::

    {"version": 7, "timestamp_ms": ..., "operation": "append", "attempt": ...,
     "topics": {"flights": {"id": "...", "next": {"0": 8000}}},    next offset per partition
     "ranges": {"flights": {"0": [7000, 8000]}},                   what this commit brought
     "added": 1, "removed": 0}

Local directories only: object stores have no such link. There, use Delta Lake or Iceberg.
"""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import uuid
from collections.abc import Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.pipeline.history import Marks, marks_from_json, marks_to_json
from magnetar.pipeline.options import Offsets
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.files import DataFile, Layout, no_rows
from magnetar.pipeline.tables.schema import plain_schema
from magnetar.pipeline.tables.table import CommitInfo, Table, TableCommit, lost_race, positions_of

_LOG = "_spark_metadata"


class ParquetTable(Table):
    """A directory of Parquet files with a commit log."""

    format = "parquet"

    def __init__(self, url: str | Path, schema: pa.Schema | None, layout: Layout) -> None:
        place = TableDirectory(url)
        if not place.is_local:
            raise TableError(
                f"{place}: plain Parquet tables are for local directories; use delta or iceberg there"
            )
        super().__init__(place, place, layout)
        self._log = place.directory / _LOG
        if not self._versions():
            if schema is None:
                raise TableError(f"there is no table at {place}")
            self._create(schema)
        self.refresh()

    @property
    def version(self) -> int:
        return int(self._head["version"])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def refresh(self) -> None:
        while True:
            newest = self._versions()[-1]
            try:
                lines = _read(self._path(newest))
                break
            except FileNotFoundError:
                continue  # it became old and was expired just now
        self._lines: list[dict[str, Any]] = lines
        self._head: dict[str, Any] = lines[0]["magnetar"]
        self._schema = plain_schema(pq.read_schema(self.place.directory / _name(lines[0])))

    def topics(self) -> dict[str, str]:
        return {name: each["id"] for name, each in self._head["topics"].items()}

    def position(self) -> Offsets:
        found: Offsets = {}
        for name, each in self._head["topics"].items():
            found |= positions_of(name, each["next"])
        return found

    def marks(self) -> Marks:
        return marks_from_json({name: each.get("marks", {}) for name, each in self._head["topics"].items()})

    def files(self) -> list[DataFile]:
        return [DataFile(_name(line), line["size"], line.get("rows", 0)) for line in self._lines[1:]]

    def history(self) -> list[CommitInfo]:
        heads = [_read(self._path(each))[0]["magnetar"] for each in reversed(self._versions())]
        return [
            CommitInfo(h["version"], h["timestamp_ms"], h["operation"], h["ranges"], h["added"], h["removed"])
            for h in heads
        ]

    def expire(self, older_than_s: float) -> int:
        """Versions that were replaced so long ago go, and with them the files that only they list."""
        versions, limit = self._versions(), time.time() - older_than_s
        # A version counts as old from when the next one was made.
        old = [v for v, _ in takewhile(lambda pair: self._made(pair[1]) <= limit, pairwise(versions))]
        if not old:
            return 0
        first_kept = versions[len(old)]
        listed = {_name(line) for v in old for line in _read(self._path(v))}
        # What a version has no more, no later one has again: to look at the first that stays is enough.
        kept = {_name(line) for line in _read(self._path(first_kept))}
        now, made = time.time(), self._made(first_kept)
        abandoned = {
            name
            for name in self.place.names()
            if name.startswith("columns-") and now - self.place.age_s(name, now) < made
        }
        for version in old:
            self._path(version).unlink(missing_ok=True)
        for name in (listed | abandoned) - kept:
            self.place.delete(name)
        return len(listed - kept)

    def set_columns(self, schema: pa.Schema) -> None:
        """Spark takes the columns of the file that comes first by name, so the new one replaces the old."""
        first = self._columns_file(schema)
        self._publish(
            self.version + 1, first, self._lines[1:], TableCommit("set columns", ""), self._head["topics"]
        )
        self.refresh()

    def _commit(self, commit: TableCommit, position: Offsets, marks: Marks) -> None:
        removed = {each.path for each in commit.remove}
        lines = [line for line in self._lines[1:] if _name(line) not in removed]
        if len(lines) != len(self._lines) - 1 - len(removed):
            raise lost_race(self, "a file to replace is gone")
        lines += [self._line(each.path, each.size) | {"rows": each.rows} for each in commit.add]
        ids = self.topics() | dict(commit.topics)
        topics: dict[str, Any] = {name: {"id": topic_id, "next": {}} for name, topic_id in ids.items()}
        for which, offset in sorted(position.items()):
            topics[which.topic]["next"][str(which.partition)] = offset
        for name, each in marks_to_json(marks).items():
            topics[name]["marks"] = each
        self._publish(self.version + 1, self._lines[0], lines, commit, topics)

    def _create(self, schema: pa.Schema) -> None:
        self.place.make()
        if any(name.endswith(".parquet") for name in self.place.names()):
            raise TableError(
                f"{self.place} holds Parquet files that no commit log speaks of; choose an empty directory"
            )
        first = self._columns_file(schema)
        try:
            self._publish(0, first, [], TableCommit("create", ""), {})
        except TableError:
            self.place.delete(_name(first))  # somebody else made the table this very moment

    def _columns_file(self, schema: pa.Schema) -> dict[str, Any]:
        """Write a file without rows, and give its line."""
        name = f"columns-{uuid.uuid4().hex[:12]}.parquet"
        path = self.place.directory / name
        pq.write_table(no_rows(schema), path)
        self.place.sync([name])
        return self._line(name, path.stat().st_size)

    def _publish(
        self,
        version: int,
        first: dict[str, Any],
        rest: Sequence[dict[str, Any]],
        commit: TableCommit,
        topics: Any,
    ) -> None:
        from magnetar.pipeline.tables.ranges import ranges_to_json

        head = {
            "version": version,
            "timestamp_ms": round(time.time() * 1000),
            "operation": commit.operation,
            "attempt": commit.attempt,
            "topics": topics,
            "ranges": ranges_to_json(commit.ranges),
            "added": len(commit.add),
            "removed": len(commit.remove),
        }
        lines = [{**first, "magnetar": head}, *rest]
        content = "\n".join(["v1", *(json.dumps(line, separators=(",", ":")) for line in lines)])
        self._log.mkdir(exist_ok=True)
        hidden = self._log / f".{version}-{uuid.uuid4().hex}"
        with hidden.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(hidden, self._path(version))
        except FileExistsError:
            raise lost_race(self) if version else TableError(f"{self.place} exists") from None
        finally:
            hidden.unlink()
        self.place.child(_LOG).sync([])

    def _line(self, name: str, size: int) -> dict[str, Any]:
        """Return a file as Spark's file sink notes it."""
        uri = (self.place.directory / name).as_uri()
        return {
            "path": uri, "size": size, "isDir": False, "modificationTime": round(time.time() * 1000),
            "blockReplication": 1, "blockSize": 32 << 20, "action": "add",
        }  # fmt: skip

    def _versions(self) -> list[int]:
        """Return the versions that are there, oldest first."""
        if not self._log.is_dir():
            return []
        names = [path.name for path in self._log.iterdir() if not path.name.startswith(".")]
        odd = [name for name in names if not name.removesuffix(".compact").isdigit() or "." not in name]
        if odd:
            raise TableError(
                f"{self.place} was written by Spark's file sink ({_LOG}/{odd[0]}); choose another place"
            )
        return sorted(int(name.removesuffix(".compact")) for name in names)

    def _made(self, version: int) -> float:
        return self._path(version).stat().st_mtime

    def _path(self, version: int) -> Path:
        return self._log / f"{version}.compact"


def _read(path: Path) -> list[dict[str, Any]]:
    """Return a version's lines; raise `TableError` naming a file that is not one of ours."""
    mark, *lines = path.read_text().split("\n")
    try:
        found = [json.loads(line) for line in lines]
        if mark != "v1" or "magnetar" not in found[0]:
            raise ValueError("it has no offsets")
    except (ValueError, IndexError, TypeError) as error:
        raise TableError(f"{path} is not a commit of magnetar's: {error}") from None
    return found


def _name(line: dict[str, Any]) -> str:
    return urllib.parse.unquote(str(line["path"]).rsplit("/", 1)[-1])
