"""The embedded store under kill -9 and on a full disk, each in a process of its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from magnetar.metadata import SqliteFile

WRITER = """
import pathlib, sys
from magnetar.metadata import SqliteFile
store = SqliteFile(pathlib.Path(sys.argv[1]))
number = len(list(store.scan("/n/")))
while True:
    with store.transaction():
        store.put(f"/n/{number:08d}", b"x" * 300)
        store.put("/last", b"%d" % number)
    print(number, flush=True)
    number += 1
"""

FULL_DISK = """
import pathlib, resource, sys
from magnetar.metadata import MetadataUnavailable, SqliteFile
store = SqliteFile(pathlib.Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
written = 0
try:
    while written < 10_000:
        store.put(f"/n/{written}", b"x" * 1000)
        written += 1
except MetadataUnavailable:
    pass
assert 10 < written < 10_000, written
assert store.get(f"/n/{written}") is None
assert store.get(f"/n/{written - 1}") is not None
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put("/after", b"!")
store.close()
again = SqliteFile(pathlib.Path(sys.argv[1]))
assert len(list(again.scan("/n/"))) == written
again.close()
print("fine")
"""


def test_what_was_written_survives_being_killed(tmp_path: Path) -> None:
    file = tmp_path / "metadata.sqlite"
    dice = random.Random()
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(dice.randrange(1, 40))]
        os.kill(writer.pid, signal.SIGKILL)
        said += [int(line) for line in writer.stdout if line.endswith("\n")]
        writer.wait()
        store = SqliteFile(file)
        found = [path for path, _ in store.scan("/n/")]
        last = store.get("/last")
        assert last is not None
        assert len(found) == int(last.value) + 1 >= said[-1] + 1
        store.close()


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "metadata.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "fine", done.stderr
