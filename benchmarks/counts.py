"""Two checkouts of Magnetar against each other in instructions, which a busy machine does not change.

    python -m benchmarks.counts BEFORE AFTER [--requests 200]

Each is a checkout with its own ``.venv``; Valgrind must be there. A broker runs under callgrind, and is counted while
one client sends the same requests one by one, after as many that are not counted, so what is printed repeats to half a
per cent. It knows nothing of caches, of what the system does for the broker, nor of how a client gathers records, as
answers come sooner or later: `benchmarks.before_after` does.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.before_after import Checkout
from benchmarks.thin import ThinClient
from magnetar.records.batch import PlainRecord, encode_batch

_PARTITIONS = 4
_BATCH_BYTES = 64_000
_MAX_BYTES = 512 << 10
_CALM_S = 8.0  # what is compiled in the background after the first requests is not counted


class Counted(Checkout):
    """A broker under callgrind, which counts while it is told to."""

    def command(self) -> list[str]:
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={self._out}"]
        return [*valgrind, sys.executable.replace(sys.prefix, str(self._root / ".venv")), *super().command()]

    def __init__(self, data: Path, name: str, root: Path) -> None:
        self._root = root
        self._out = data.with_suffix(".callgrind")
        super().__init__(data, name, root)

    def count(self, on: bool) -> None:
        """Count from now on, or no longer."""
        self._control("--instr=" + ("on" if on else "off"))

    def counted(self) -> int:
        """Return the instructions since this was asked last."""
        for old in self._out.parent.glob(self._out.name + ".*"):
            old.unlink()
        self._control("--dump")
        lines = [
            line
            for each in self._out.parent.glob(self._out.name + ".*")
            for line in each.read_text(errors="replace").splitlines()
        ]
        return sum(int(line.split()[1]) for line in lines if line.startswith(("totals:", "summary:")))

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, str(self.pid)], check=True, capture_output=True)


def measure(server: Counted, requests: int) -> dict[str, float]:
    """Return instructions for each request, by what was asked for."""
    found = {}
    with ThinClient.to(server.address) as client:
        client.create_topics(["t"], _PARTITIONS)
        for size in (100, 1000):
            batch = encode_batch([PlainRecord(None, b"x" * size, timestamp=1)] * (_BATCH_BYTES // size))

            def produce(number: int, batch: bytes = batch) -> None:
                client.send_batch("t", number % _PARTITIONS, batch)

            found[f"Produce, 64 KB of {size} B"] = _count(server, produce, requests)
        found["Fetch, 512 KB"] = _count(
            server, lambda number: client.fetch("t", number % _PARTITIONS, 0, _MAX_BYTES), requests
        )
    return found


def _count(server: Counted, ask: Callable[[int], object], requests: int) -> float:
    for number in range(requests):
        ask(number)
    time.sleep(_CALM_S)
    server.count(True)
    for number in range(requests):
        ask(number)
    server.count(False)
    return server.counted() / requests


def main() -> None:
    """Print a table of both, and the ratios."""
    parser = argparse.ArgumentParser(prog="counts", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--requests", type=int, default=200)
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, root in (("before", given.before.resolve()), ("after", given.after.resolve())):
            with Counted(Path(scratch) / name, name, root) as server:
                found[name] = measure(server, given.requests)
    print(f"| {'instructions for a request':<30} | before | after | ratio |\n|---|---:|---:|---:|")
    for what, before in found["before"].items():
        after = found["after"][what]
        print(f"| {what:<30} | {before:,.0f} | {after:,.0f} | {after / before:.3f} |")


if __name__ == "__main__":
    main()
