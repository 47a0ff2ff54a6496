"""A topic moves between files, bookies and an object store, equal by audit each time; see `tests.cluster.moving_topic`.

``MAGNETAR_MOVED_RECORDS`` says how many records it has: a million take some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from tests.cluster.servers import class_path

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow, pytest.mark.spark]

RECORDS = os.environ.get("MAGNETAR_MOVED_RECORDS", "20000")
PLACES = (
    "files",
    "bookkeeper, past its broker",
    "the object store, through the broker on bookies",
    "the object store, past the broker on bookies",
    "files again",
    "the object store, through the broker on files",
    "bookkeeper again",
)


def test_it_is_equal_wherever_it_lies() -> None:
    """In a process of its own: Spark's workers take the store's keys from the environment that Spark was started in."""
    command = [sys.executable, "-m", "tests.cluster.moving_topic", RECORDS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    print(done.stdout)
    equal = [line.partition(": equal")[0] for line in done.stdout.splitlines() if ": equal" in line]
    assert tuple(equal) == PLACES
