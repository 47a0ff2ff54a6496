#!/usr/bin/env python3
"""Run what is built on Kafka's protocol: Kafka Streams, Kafka Connect, MirrorMaker 2, Flink, and Spark's Kafka sink.

    compat/run_apps.py --magnetar               all of them, on brokers of their own
    compat/run_apps.py --kafka                  the same on Apache Kafka
    compat/run_apps.py --magnetar --check files

A whole run is kept in compat/results/apps.json. Ends with status 1 when a check fails; what the applications and the
broker said stays then, and the last line says where.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from outcomes import outcome
from run import HERE
from versions import version

sys.path.insert(0, str(HERE.parent))

from apps import connect, flink, java, mirror, spark, streams

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar
from benchmarks.peers.server import Server

CHECKS: tuple[Callable[[Server, Path], None], ...] = (
    streams.word_count,
    streams.streams_group,
    connect.files,
    connect.files_once,
    mirror.move,
    mirror.move_once,
    flink.copy_once,
    spark.stream,
)
RESULTS = HERE / "results" / "apps.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--magnetar", action="store_const", dest="broker", const="magnetar")
    where.add_argument("--kafka", action="store_const", dest="broker", const="kafka")
    parser.add_argument("--check", action="append", default=[])
    options = parser.parse_args()

    java.install()
    kind = Magnetar if options.broker == "magnetar" else Kafka
    folder = Path(tempfile.mkdtemp(prefix="magnetar-apps-"))
    outcomes: dict[str, dict[str, object]] = {}
    failed = 0
    for check in CHECKS:
        name = check.__name__
        if options.check and name not in options.check:
            continue
        (folder / name).mkdir()
        broker = kind(folder / name / "broker")
        try:
            broker.start()
            outcomes[name] = outcome(check, broker, folder / name)
        finally:
            broker.kill()
        failed += not outcomes[name]["ok"]
    if not options.check:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        results[options.broker] = {"date": today, "broker": version(options.broker), "checks": outcomes}
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(f"{failed} failed; see {folder}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
