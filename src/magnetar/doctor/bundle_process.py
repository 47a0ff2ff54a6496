"""A process as the system sees it: what a maintainer asks of one that hangs, its log's end, and its secrets.

All of it comes from ``/proc``; elsewhere there is nothing of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from magnetar.auth.redaction import secrets_among
from magnetar.base.errors import BrokerError
from magnetar.node.setting_sources import read_properties
from magnetar.settings.settings import Declared

_PROC = Path("/proc")
_MOST_THREADS = 200
_FIELDS = (
    "State", "VmPeak", "VmRSS", "VmHWM", "VmSwap", "Threads", "voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
)  # fmt: skip


def seen_from_outside(pid: int, proc: Path = _PROC) -> list[str]:
    """Return lines about memory, limits, descriptors and threads; raise ``OSError`` for one that has gone."""
    root = proc / str(pid)
    lines = [f"process {pid}", ""]
    lines += [each for each in _lines(root / "status") if each.partition(":")[0] in _FIELDS]
    lines += ["", f"descriptors: {len(os.listdir(root / 'fd'))}", "", *_lines(root / "limits"), ""]
    for each in sorted((root / "task").iterdir(), key=lambda path: int(path.name))[:_MOST_THREADS]:
        try:
            state = next(
                (line.split()[1] for line in _lines(each / "status") if line.startswith("State:")), "?"
            )
            name = (each / "comm").read_text().strip()
            lines.append(f"thread {each.name} {name}: {state}, waits in {_waits_in(each)}")
        except OSError:  # it has ended
            continue
    return lines


def _waits_in(thread: Path) -> str:
    try:
        return (thread / "wchan").read_text().strip("\0\n") or "0"
    except OSError:
        return "?"


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()


def log_file_of(pid: int, proc: Path = _PROC) -> Path | None:
    """Return the file that a process logs to, if its standard error is one."""
    place = proc / str(pid) / "fd" / "2"
    try:
        return place.resolve() if stat.S_ISREG(place.stat().st_mode) else None
    except OSError:
        return None


def last_lines(path: Path, most_bytes: int) -> list[str]:
    """Return the whole lines within the last bytes of a file."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - most_bytes, 0))
        content = file.read(most_bytes)
    lines = content.decode("utf-8", "replace").split("\n")
    return lines[1:] if size > most_bytes else lines


def secrets_of_process(pid: int, declared: Declared, proc: Path = _PROC) -> list[str]:
    """Return secrets that a process was started with: by its environment, its arguments, and the file they name."""
    root = proc / str(pid)
    try:
        words = (root / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        variables = (root / "environ").read_bytes().decode("utf-8", "replace").split("\0")
        folder = (root / "cwd").resolve()
    except OSError:
        return []
    pairs = [each for each in (*words, *variables) if "=" in each]
    return _secrets(pairs, declared) + _of_files(words, folder, declared)


def _secrets(pairs: Iterable[str], declared: Declared) -> list[str]:
    found = []
    for each in pairs:
        name, _, value = each.removeprefix("--set=").partition("=")
        found += secrets_among({name.strip(): value.strip()}, declared)
    return found


def _of_files(words: Sequence[str], folder: Path, declared: Declared) -> list[str]:
    named = [after for word, after in pairwise(words) if word == "--config"]
    named += [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
    found = []
    for each in named:
        try:
            found += secrets_among(read_properties(folder / each), declared)
        except (OSError, BrokerError):
            continue
    return found
