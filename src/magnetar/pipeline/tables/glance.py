"""How far an embedded Iceberg table is, from its files alone: PyIceberg and what it loads take over a second.

A catalog's row names the table's newest metadata, a file of JSON with properties and snapshots. Only who finds that
there is nothing to do may go by it: whoever writes opens the table.
"""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from magnetar.pipeline.history import Marks, marks_from_json
from magnetar.pipeline.options import Offsets, TopicPartition
from magnetar.pipeline.tables.directory import TableDirectory

CATALOG, CATALOG_FILE, NAMESPACE = "embedded", "catalog.sqlite", "default"
TOPICS, NEXT, MARKS = "magnetar.topics", "magnetar.next.", "magnetar.marks."
_ROW = (
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)


@dataclass(frozen=True, slots=True)
class Glance:
    """What a table's newest metadata say of it."""

    place: str
    version: int
    topics: dict[str, str]
    position: Offsets
    marks: Marks
    snapshots_ms: tuple[int, ...]
    """When the snapshots were made that are not the newest."""

    def has_expired(self, keep_s: float | None) -> bool:
        """Return whether upkeep would forget a snapshot."""
        limit = -1.0 if keep_s is None else (time.time() - keep_s) * 1000
        return any(made < limit for made in self.snapshots_ms)


def glance_at(url: str | Path) -> Glance | None:
    """Return how far the embedded Iceberg table in a directory is; None if there is none, or nobody can tell so."""
    place = TableDirectory(url)
    if not place.is_local or not (place.directory.parent / CATALOG_FILE).is_file():
        return None
    try:
        metadata = _metadata(place.directory)
        properties = metadata.get("properties", {})
        topics = json.loads(properties.get(TOPICS, "{}"))
        position = {
            TopicPartition(topic, int(partition)): offset
            for topic in topics
            for partition, offset in json.loads(properties.get(NEXT + topic, "{}")).items()
        }
        marks = marks_from_json({t: json.loads(properties.get(MARKS + t, "{}")) for t in topics})
        newest = metadata.get("current-snapshot-id") or 0
        made = tuple(
            each["timestamp-ms"] for each in metadata.get("snapshots", ()) if each["snapshot-id"] != newest
        )
        return Glance(place.url, int(newest), topics, position, marks, made)
    except (sqlite3.Error, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # whoever opens the table says what is wrong with it


def _metadata(directory: Path) -> Any:
    file = directory.parent / CATALOG_FILE
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        row = connection.execute(_ROW, (CATALOG, NAMESPACE, directory.name)).fetchone()
    parts = urlsplit(row[0])
    if parts.scheme not in ("", "file"):
        raise ValueError(f"{row[0]} is no file of this machine")
    return json.loads(Path(unquote(parts.path)).read_bytes())
