"""Checkpoints of Spark's streams that were killed before their first batch.

Spark writes ``offsets/0`` to a hidden file and renames it. Killed in between, it refuses to start again
(``STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY``, SPARK-53103), since the directory of a query without batches must be
empty: the hidden file counts. Nothing was read or written by then, so the file can go.
"""

from __future__ import annotations

import re
from pathlib import Path

_LOGS = ("offsets", "commits")
_UNFINISHED = re.compile(r"^\.{1,2}\d+\.[0-9a-f-]{36}\.tmp(\.crc)?$")


def clear_unbegun(directory: Path) -> tuple[Path, ...]:
    """Take away what kills left in the checkpoints below that have no batch; give those files."""
    gone = []
    for offsets in sorted(directory.rglob("offsets")):
        found = [each for log in _LOGS for each in _files(offsets.with_name(log))]
        if not any(each.name.isdigit() for each in found):
            gone += [each for each in found if _UNFINISHED.match(each.name)]
    for each in gone:
        each.unlink(missing_ok=True)
    return tuple(gone)


def _files(directory: Path) -> list[Path]:
    return [each for each in directory.iterdir() if each.is_file()] if directory.is_dir() else []
