"""Programs that are asked by lines on standard input, and end when there are no more."""

from __future__ import annotations

import subprocess
from typing import Any

GOES_SECONDS = 10


def let_go(process: subprocess.Popen[Any]) -> None:
    """Have the program end by itself; kill it if it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(GOES_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
