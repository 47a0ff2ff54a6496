"""What Spark says, in a file: the JVM and Python's workers write to the standard error that they were started with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def stderr_to(path: Path | None) -> Iterator[None]:
    """Have what this process writes to stderr in the block go to a file, behind what is there; None changes nothing.

    Processes that are started in the block write to the file as long as they live.
    """
    if path is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
