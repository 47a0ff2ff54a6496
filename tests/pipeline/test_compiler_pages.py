"""What the compiler leaves in memory is let go of, and it goes on working."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.pipeline.compiler_pages import unchanged

SMAPS = """\
1000-3000 r-xp 00000000 fe:00 5 /lib/libllvmlite.so
Rss:                   8 kB
Anonymous:             0 kB
3000-4000 r--p 00002000 fe:00 5 /lib/libllvmlite.so
Anonymous:             4 kB
4000-5000 rw-p 00003000 fe:00 5 /lib/libllvmlite.so
Anonymous:             0 kB
5000-6000 rw-p 00000000 00:00 0
Anonymous:             4 kB
6000-7000 r-xp 00000000 fe:00 6 /lib/libLLVM-20.so
Anonymous:             0 kB
7000-8000 r-xp 00000000 fe:00 7 /lib/libllvmlite/libc.so.6
Anonymous:             0 kB
"""
LET_GO = """
import numba
import magnetar.pipeline.slice_reader
from magnetar.pipeline.compiler_pages import let_go_of_compiler

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("RssFile:"))) << 10

before = resident()
let_go_of_compiler()
after = resident()
print(before - after, numba.njit(lambda number: number + 1)(1))
"""


def test_only_pages_as_they_are_in_the_file_are_let_go_of() -> None:
    assert list(unchanged(SMAPS)) == [(0x1000, 0x2000), (0x6000, 0x1000)]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads /proc")
def test_the_compiler_leaves_memory_and_still_compiles() -> None:
    told = subprocess.run([sys.executable, "-c", LET_GO], capture_output=True, text=True, check=True)
    gone, answer = map(int, told.stdout.split())
    assert gone > 10 << 20
    assert answer == 2
