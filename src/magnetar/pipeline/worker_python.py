"""Which Python Spark's processes run: ``bin/magnetar-python``, which spares them compiling Spark's library."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def worker_python(master: str = "local") -> str:
    """Return the path for ``PYSPARK_PYTHON``: for Spark on this machine ``magnetar-python``, where it is installed."""
    script = Path(sysconfig.get_path("scripts"), "magnetar-python")
    if master.startswith("local") and os.access(script, os.X_OK):
        beside = script.with_name("python")
        if beside.exists() and beside.samefile(sys.executable):
            return str(script)
    return sys.executable
