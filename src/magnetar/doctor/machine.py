"""The machine below a broker: limits of a process, the kernel's settings that matter, memory, and the clock."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from pathlib import Path

from magnetar.admin.broker_state import BrokerState
from magnetar.doctor.findings import Grade, Looked
from magnetar.node.vitals import NEAR, memory_limit
from magnetar.settings.settings import Settings

FEW_DESCRIPTORS = 10_000
_PROC = Path("/proc")
_OFF_BY_S = 1.0
_STATUS_UNSYNCED = 0x40
_STATUS_NANO = 0x2000
_CLOCK_ERROR = 5
_LITTLE_AVAILABLE = 20  # a part of it


def look_at_machine(
    looked: Looked, settings: Settings, state: BrokerState | None, proc: Path = _PROC
) -> None:
    """Look at all of it; ``state`` is what the running broker says, None where none runs."""
    _descriptors(looked, settings, state)
    _kernel(looked, settings, proc)
    _memory(looked, settings, state, proc)
    _clock(looked)


def _descriptors(looked: Looked, settings: Settings, state: BrokerState | None) -> None:
    if state is None:
        limit, used = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 0
        whose = "this shell's hard limit"
    else:
        limit, used, whose = state.descriptor_limit, state.descriptors, "the broker's limit"
    if limit in (-1, resource.RLIM_INFINITY):
        looked.measured["descriptors"] = f"{used:,} used, no limit"
        return
    looked.measured["descriptors"] = f"{used:,} used of {limit:,} ({whose})"
    most = settings.connections.max_connections
    wanted = FEW_DESCRIPTORS if most > FEW_DESCRIPTORS else most + 1000
    if limit < wanted:
        looked.add(
            Grade.warning,
            "descriptors",
            f"{whose} is {limit:,} file descriptors",
            "each connection and each open ledger takes one; without any, new connections are closed",
            f"allow {FEW_DESCRIPTORS * 10:,} (ulimit -n, LimitNOFILE), or bound max.connections",
        )


def _kernel(looked: Looked, settings: Settings, proc: Path) -> None:
    backlog = settings.connections.socket_listen_backlog_size
    most = _number(proc / "sys/net/core/somaxconn")
    if most is not None and most < backlog:
        looked.add(
            Grade.note,
            "kernel",
            f"net.core.somaxconn is {most}, less than socket.listen.backlog.size {backlog}",
            "of many clients that connect together, some wait for a second or more",
            f"sysctl -w net.core.somaxconn={backlog}, or set socket.listen.backlog.size={most}",
        )
    used, limit = _number(proc / "sys/fs/aio-nr"), _number(proc / "sys/fs/aio-max-nr")
    if used is not None and limit is not None and used >= limit * NEAR:
        looked.add(
            Grade.warning,
            "kernel",
            f"{used:,} of {limit:,} asynchronous writes (fs.aio-max-nr) are taken on this machine",
            "the journal writes by them; without, each of its writes goes through a thread",
            f"sysctl -w fs.aio-max-nr={limit * 8}",
        )
    dirty = _number(proc / "sys/vm/dirty_ratio")
    if dirty is not None and dirty > 40:
        looked.add(
            Grade.note,
            "kernel",
            f"vm.dirty_ratio is {dirty}",
            "that part of the memory may wait to be written, and then all writers wait for the disk",
            "sysctl -w vm.dirty_ratio=20 vm.dirty_background_ratio=5",
        )
    strict = _number(proc / "sys/vm/overcommit_memory")
    if strict == 2:
        looked.add(
            Grade.note,
            "kernel",
            "vm.overcommit_memory is 2",
            "memory that is only reserved counts: starting a worker or a compaction may fail with memory free",
            "sysctl -w vm.overcommit_memory=0",
        )
    for name in ("swappiness", "dirty_ratio", "dirty_background_ratio", "overcommit_memory"):
        if (value := _number(proc / "sys/vm" / name)) is not None:
            looked.measured[f"vm.{name}"] = str(value)


def _memory(looked: Looked, settings: Settings, state: BrokerState | None, proc: Path) -> None:
    whole = _field(proc / "meminfo", "MemTotal")
    left = _field(proc / "meminfo", "MemAvailable")
    limit = memory_limit() if state is None else state.memory_limit_bytes
    bound = min(each for each in (whole, limit, 1 << 62) if each is not None)
    if whole is not None and left is not None:
        looked.measured["memory"] = f"{left:,} of {whole:,} bytes available" + (
            "" if limit is None else f", {limit:,} allowed to the broker"
        )
        if left < whole // _LITTLE_AVAILABLE:
            looked.add(
                Grade.warning,
                "memory",
                f"{left:,} of the machine's {whole:,} bytes of memory are available",
                "readers that are near the end are served from the page cache, and the kernel ends processes",
                "give the machine more, or find what takes it (ps aux --sort -rss)",
            )
    budget = settings.connections.memory_requests_bytes
    if budget > bound // 2:
        looked.add(
            Grade.warning,
            "memory",
            f"memory.requests.bytes is {budget:,}, and the broker may have {bound:,} bytes",
            "a crowd of clients may have the broker killed for its memory",
            f"set memory.requests.bytes={bound // 4}, or give it more memory",
        )
    if state is not None:
        swapped = _field(proc / str(state.pid) / "status", "VmSwap")
        if swapped:
            looked.add(
                Grade.warning,
                "memory",
                f"{swapped:,} bytes of the broker are swapped out",
                "the whole broker waits whenever one of these is needed",
                "sysctl -w vm.swappiness=1, or give the machine more memory",
            )


def _clock(looked: Looked) -> None:
    try:
        synced, off_s = clock_state()
    except (OSError, AttributeError) as error:
        looked.not_looked["clock"] = f"the kernel does not tell: {error}"
        return
    looked.measured["clock"] = (
        f"{'synchronized' if synced else 'not synchronized'}, off by {off_s:.6f} s at most"
    )
    if not synced:
        looked.add(
            Grade.warning,
            "clock",
            "the system's clock is not synchronized",
            "retention, TTLs, tokens and times of records go by it, and machines must agree on it",
            "run chronyd, systemd-timesyncd or the like; in a container the host has to",
        )
    elif off_s > _OFF_BY_S:
        looked.add(
            Grade.warning,
            "clock",
            f"the system's clock may be off by {off_s:.1f} s",
            "retention, TTLs, tokens and times of records go by it",
            "chronyc tracking, or timedatectl timesync-status, tells by which server it goes",
        )


def clock_state() -> tuple[bool, float]:
    """Return whether the kernel's clock is synchronized, and by how many seconds it may be off (``adjtimex``)."""
    call = ctypes.CDLL(None, use_errno=True).adjtimex
    buffer = ctypes.create_string_buffer(512)  # struct timex has 208 bytes; all 0 asks and changes nothing
    result = call(buffer)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    word = "q" if ctypes.sizeof(ctypes.c_long) == 8 else "i"
    _, _, _, max_error, _, status = struct.unpack_from(f"@i{word}{word}{word}{word}i", buffer)
    return result != _CLOCK_ERROR and not status & _STATUS_UNSYNCED, max_error / 1e6


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    """Return the bytes of a line ``NAME:  123 kB`` of a file of ``/proc``."""
    try:
        line = next(each for each in path.read_text().splitlines() if each.startswith(f"{name}:"))
        return int(line.split()[1]) << 10
    except (OSError, StopIteration, ValueError, IndexError):
        return None
