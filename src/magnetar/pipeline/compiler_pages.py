"""Giving back the memory of the compiler that loaded the kernels: 65 MB in each of Spark's workers.

LLVM links what is on disk into the process and has nothing to do from then on, but its code and constants stay
resident. Pages that are still as they are in its file are let go of; whoever calls it again reads them from the page
cache.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_COMPILER = re.compile(r"lib(llvmlite|LLVM)[^/]*$")
_MAPPING = re.compile(r"(?m)^([0-9a-f]+)-([0-9a-f]+) (\S{4}) .*$")
_DIRTY = re.compile(r"(?m)^Anonymous: +[1-9]")


def let_go_of_compiler() -> None:
    """Let go of LLVM's pages, where it is loaded and the system can be asked to."""
    try:
        told = _SMAPS.read_text()
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    for start, size in unchanged(told):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def unchanged(smaps: str) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of what is mapped of the compiler and is nowhere else than in its file."""
    found = list(_MAPPING.finditer(smaps))
    ends = [each.start() for each in found[1:]] + [len(smaps)]
    for mapping, end in zip(found, ends, strict=True):
        # Addresses in constants were put right by the loader: a page with such a change would come back without it.
        if (
            _COMPILER.search(mapping[0])
            and "w" not in mapping[3]
            and not _DIRTY.search(smaps, mapping.end(), end)
        ):
            start = int(mapping[1], 16)
            yield start, int(mapping[2], 16) - start
