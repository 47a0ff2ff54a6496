"""A data directory as a broker needs it: room, a disk that flushes in time, files that are whole, a known format."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from magnetar.admin.errors import AdminError
from magnetar.doctor.bounded import bounded
from magnetar.doctor.findings import Grade, Looked
from magnetar.doctor.ledgers import Gravity, verify
from magnetar.ledger.files.half_copy import METADATA, parts_without_metadata
from magnetar.ledger.room import space_of
from magnetar.metadata import MetadataError, SqliteFile
from magnetar.metadata.formats import NewerFormat
from magnetar.node.disk_watch import reserve_of
from magnetar.settings.settings import Settings

MOST_READ = 256 << 20
"""Bytes of ledgers that a checkup reads."""
FLUSHES = 20
_FLUSHING_S = 2.0
_HANGS_S = 15.0
_SLOW_S, _VERY_SLOW_S = 0.02, 0.2
_MOST_FINDINGS = 10
_FUTURE_S = 60.0
_LITTLE_LEFT = 2
"""So many times what producers may not use."""
_BLOCK = bytes(4096)


def look_at_directory(looked: Looked, data: Path, settings: Settings, *, running: bool) -> None:
    """Look at all of it. Nothing is changed; for the time of a flush a file is written and removed."""
    if not data.is_dir():
        looked.add(
            Grade.error if running else Grade.note,
            "directory",
            f"there is no directory {data}",
            "a broker that starts there makes it, and begins with nothing",
            "name the one that 'magnetar standalone --data' was given, unless it is new",
        )
        return
    _room(looked, data, settings)
    _flush(looked, data)
    if _metadata(looked, data):
        _future(looked, data)
        _ledgers(looked, data)


def _room(looked: Looked, data: Path, settings: Settings) -> None:
    try:
        space = bounded(_HANGS_S, lambda: space_of(data))
    except (OSError, TimeoutError) as error:
        looked.add(
            Grade.error, "room", f"the file system of {data} cannot be asked: {error}",
            "a broker writes there with every record", "look at the disk (dmesg), or at the network's file system",
        )  # fmt: skip
        return
    reserve = reserve_of(space, settings.node.disk_min_free_bytes)
    looked.measured["room"] = f"{space.free_bytes:,} of {space.total_bytes:,} bytes free"
    if space.total_inodes:
        looked.measured["inodes"] = f"{space.free_inodes:,} of {space.total_inodes:,} free"
    for check, free, kept, unit in (
        ("room", space.free_bytes, reserve.bytes, "bytes"),
        ("inodes", space.free_inodes, reserve.inodes if space.total_inodes else 0, "inodes"),
    ):
        if kept and free <= kept * _LITTLE_LEFT:
            refused = free <= kept
            looked.add(
                Grade.error if refused else Grade.warning,
                check,
                f"{free:,} {unit} are left where {data} lies",
                f"producers are refused from {kept:,} on (disk.min.free.bytes)",
                "delete topics, shorten retention.ms or retention.bytes, or give the file system more",
            )


def _flush(looked: Looked, data: Path) -> None:
    try:
        times = bounded(_HANGS_S, lambda: flush_times(data))
    except TimeoutError:
        looked.add(
            Grade.error, "flush", f"the disk of {data} did not flush 4 KB within {_HANGS_S:.0f} s",
            "an acknowledgement waits for a flush (flush=always)", "look at the disk: dmesg, smartctl, iostat -x",
        )  # fmt: skip
        return
    except OSError as error:
        looked.not_looked["flush"] = f"nothing can be written in {data} by this user: {error.strerror}"
        return
    middle, most = statistics.median(times), max(times)
    looked.measured["flush"] = f"{middle * 1000:.2f} ms, {most * 1000:.2f} ms at most of {len(times)}"
    if middle >= _SLOW_S:
        looked.add(
            Grade.warning if middle >= _VERY_SLOW_S else Grade.note,
            "flush",
            f"a flush takes {middle * 1000:.0f} ms",
            "with flush=always each acknowledgement waits for one; producers that wait for each record get "
            f"{1 / middle:.0f} records a second at most",
            "use an SSD for the data directory alone, or flush=interval for topics that may lose their last records",
        )


def flush_times(folder: Path) -> list[float]:
    """Return how long single flushes of 4 KB took, in seconds."""
    path = folder / f".doctor-{os.getpid()}"
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    times: list[float] = []
    try:
        until = time.monotonic() + _FLUSHING_S
        while len(times) < FLUSHES and (not times or time.monotonic() < until):
            began = time.perf_counter()
            os.pwrite(number, _BLOCK, len(times) * len(_BLOCK))
            os.fdatasync(number)
            times.append(time.perf_counter() - began)
    finally:
        os.close(number)
        path.unlink(missing_ok=True)
    return times


def _metadata(looked: Looked, data: Path) -> bool:
    """Return whether the metadata are there and may be read."""
    file = data / METADATA
    if not file.exists():
        if parts := parts_without_metadata(data):
            looked.add(
                Grade.error,
                "directory",
                f"{data} has {' and '.join(parts)}, but no {METADATA}",
                "it is half a copy: only the metadata have which ledgers make up which topic",
                "copy the whole directory again ('magnetar backup' does it while the broker runs)",
            )
        return False
    try:
        SqliteFile(file, read_only=True).close()
    except NewerFormat as error:
        looked.add(
            Grade.error, "format", str(error), "this release would misread it, and refuses it with nothing changed",
            "install that release or a newer one",
        )  # fmt: skip
        return False
    except MetadataError as error:
        looked.add(
            Grade.error, "metadata", f"the metadata cannot be read: {error}", "no broker starts without them",
            f"run 'magnetar ledger verify --data {data}', or restore a backup",
        )  # fmt: skip
        return False
    return True


def _future(looked: Looked, data: Path) -> None:
    newest = max((each.stat().st_mtime for each in data.glob(f"{METADATA}*")), default=0.0)
    ahead = newest - time.time()
    if ahead > _FUTURE_S:
        looked.add(
            Grade.warning,
            "clock",
            f"the metadata were written {ahead:,.0f} s from now",
            "the clock was ahead then, or is behind now: retention and TTLs go by it",
            "compare 'date' with another machine's",
        )


def _ledgers(looked: Looked, data: Path) -> None:
    try:
        report = verify(data, MOST_READ)
    except (AdminError, OSError) as error:
        looked.not_looked["ledgers"] = str(error)
        return
    left = f", of {report.left_out:,} more only the sizes" if report.left_out else ""
    looked.measured["ledgers"] = (
        f"{report.bytes:,} bytes of {report.ledgers - report.left_out:,} ledgers read{left}"
    )
    levels = {
        Gravity.damage: Grade.error,
        Gravity.wear: Grade.note,
        Gravity.note: Grade.note,
    }
    for each in report.findings[:_MOST_FINDINGS]:
        damaged = each.gravity is Gravity.damage
        looked.add(
            levels[each.gravity],
            "ledgers",
            f"{each.file}{f', byte {each.at}' if each.at >= 0 else ''}: {each.what}",
            "what was written is not there any more" if damaged else "nothing is lost",
            each.do,
        )
    more = len(report.findings) - _MOST_FINDINGS
    if more > 0:
        looked.add(
            Grade.note, "ledgers", f"{more:,} findings more", "they are of the same check",
            f"run 'magnetar ledger verify --data {data}'",
        )  # fmt: skip
