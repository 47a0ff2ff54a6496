"""Spark's own Kafka connector: its jars, as ``compat/spark-kafka.sh`` has Maven bring them once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).parents[2] / "compat" / "spark-kafka.sh"


def connector_jars() -> str:
    """Return the value of ``spark.jars``."""
    done = subprocess.run(["bash", _SCRIPT, sys.executable], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
