"""What a process that serves many clients asks of the system: descriptors, and memory that is given back."""

from __future__ import annotations

import contextlib
import ctypes
import resource


def raise_file_limit() -> None:
    """Let this process open as many files as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def bound_allocator() -> None:
    """Have buffers of 1 MB reused, and larger ones, and more than two at rest, given back at once.

    Left alone, glibc comes to keep tens of MB per thread, and gives back each buffer of 1 MB only to be asked for
    the next: a read of 1 MB then spends a third of its time on page faults.
    """
    mmap_threshold, trim_threshold, arenas = -3, -1, -8
    with contextlib.suppress(AttributeError):  # not glibc
        allocator = ctypes.CDLL(None)
        allocator.mallopt(mmap_threshold, 4 << 20)
        allocator.mallopt(trim_threshold, 2 << 20)
        allocator.mallopt(arenas, 2)
