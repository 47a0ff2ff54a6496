"""Names and sizes of the files in a data directory, and nothing of what is in them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

MOST_ROWS = 5000
_WALK_S = 5.0


def layout(data: Path) -> list[str]:
    """Return a line for each file, and one for each folder with its sum; of very many the rest is not listed."""
    lines = [f"{'bytes':>16}  {'changed (UTC)':<19}  name"]
    until = time.monotonic() + _WALK_S
    files = total = 0
    for name, found in _walk(data, data, until):
        if found is None:
            lines.append(f"{'?':>16}  {'':<19}  {name}")
            continue
        files, total = files + 1, total + found.st_size
        if len(lines) < MOST_ROWS:
            changed = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(found.st_mtime))
            lines.append(f"{found.st_size:>16,}  {changed}  {name}")
    lines.append(f"{total:>16,}  {'':<19}  in {files:,} files")
    if files > MOST_ROWS:
        lines.append("Not all of them are listed.")
    if time.monotonic() > until:
        lines.append(f"There are more: the directory was looked at for {_WALK_S:.0f} s.")
    return lines


def _walk(root: Path, folder: Path, until: float) -> Iterator[tuple[str, os.stat_result | None]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError:
        yield f"{folder.relative_to(root)}/ (cannot be read)", None
        return
    for each in entries:
        if time.monotonic() > until:
            return
        if each.is_dir(follow_symlinks=False):
            yield from _walk(root, Path(each.path), until)
            continue
        try:
            found = each.stat(follow_symlinks=False)
        except OSError:  # it was removed meanwhile
            continue
        yield str(Path(each.path).relative_to(root)) + (" (a link)" if each.is_symlink() else ""), found
