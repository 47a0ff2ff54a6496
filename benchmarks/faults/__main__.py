"""A cluster under load is hurt for so many minutes, and what came out is compared with what was acknowledged.

    python -m benchmarks.faults [--minutes 60] [--seed 1] [--json FILE] [--page]

One fault after the other, in rounds of all kinds shuffled from the seed. Needs Java and BookKeeper's jars.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.faults.faults import FAULTS
from benchmarks.faults.house import SESSION_MS
from benchmarks.faults.page import RESULTS, write
from benchmarks.faults.run import Run


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="where the cluster's files go, to look at them later")
    parser.add_argument("--json", type=Path, help="keep what came out")
    parser.add_argument("--only", nargs="*", default=[], help="only faults whose names contain one of these")
    parser.add_argument("--session-ms", type=int, default=SESSION_MS, help="of ZooKeeper's, for brokers")
    parser.add_argument("--page", action="store_true", help=f"write docs/faults.md from {RESULTS.name} alone")
    given = parser.parse_args()
    if given.page:
        write()
        return
    signal.signal(signal.SIGTERM, _end)
    data = given.data or Path(tempfile.mkdtemp(prefix="faults-"))
    data.mkdir(parents=True, exist_ok=True)
    faults = [each for each in FAULTS if not given.only or any(part in each.name for part in given.only)]
    run = Run(data, given.seed, 60 * given.minutes, faults, given.session_ms)
    outcome = run.go()
    if given.json is not None:
        given.json.write_text(json.dumps(outcome, indent=1) + "\n")
    for each in outcome["violations"]:
        print("VIOLATION", each)
    sys.exit(bool(outcome["violations"]))


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not end what ends the servers
    sys.exit("ended by SIGTERM")


if __name__ == "__main__":
    main()
