#!/usr/bin/env python3
"""Run what is built on Kafka's protocol: Kafka Streams, Connect, MirrorMaker 2, Flink, Spark's sink, Quix Streams ...

    compat/run_apps.py --magnetar               all of them, on brokers of their own
    compat/run_apps.py --kafka                  the same on Apache Kafka
    compat/run_apps.py --magnetar --check files
    compat/run_apps.py --magnetar --broken loses --check quix     its broker loses records: the check must fail
    compat/run_apps.py --magnetar --broken doubles                its broker has records twice

A run is merged into compat/results/apps.json. Ends with status 1 when a check fails (or, with --broken, when one does
not); what the applications and the broker said stays then, and the last line says where.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from outcomes import outcome
from run import HERE
from versions import version

sys.path.insert(0, str(HERE.parent))

from apps import connect, debezium, doublers, faults, flink, java, mirror, spark, streams, syslog

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar
from benchmarks.peers.server import Server

PEOPLES = (
    doublers.quix,
    doublers.faststream,
    doublers.bytewax,
    doublers.spring_kafka,
    doublers.camel,
    doublers.kafka_ts,
    doublers.platformatic,
    doublers.watermill,
    syslog.rsyslog,
    debezium.postgres_rows,
)
"""Other people's programs: what does not come with Kafka."""
ONCE = (doublers.quix, doublers.spring_kafka, debezium.postgres_rows)
"""Of them, those that promise to work exactly once."""
CHECKS: tuple[Callable[[Server, Path], None], ...] = (
    streams.word_count,
    streams.streams_group,
    connect.files,
    connect.files_once,
    mirror.move,
    mirror.move_once,
    flink.copy_once,
    spark.stream,
    *PEOPLES,
)
RESULTS = HERE / "results" / "apps.json"


def note(file: Path, broken: str, outcomes: dict[str, dict[str, object]]) -> None:
    """Merge what a broken broker made of checks into the results file: whether each failed, and by which words."""
    results = json.loads(file.read_text())
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    seen = results.setdefault("broken", {}).setdefault(broken, {})
    for name, each in outcomes.items():
        seen[name] = {"failed": not each["ok"], "detail": str(each["detail"])[:120], "date": today}
    file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def keep(file: Path, broker: str, outcomes: dict[str, dict[str, object]]) -> None:
    """Merge outcomes into the results file, each with its date and what ran."""
    results = json.loads(file.read_text()) if file.exists() else {}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    run = {"date": today, "broker": version(broker)}
    checks = results.setdefault(broker, {}).setdefault("checks", {})
    checks |= {name: each | run for name, each in outcomes.items()}
    if len(outcomes) == len(CHECKS):
        results[broker] |= run
    file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--magnetar", action="store_const", dest="broker", const="magnetar")
    where.add_argument("--kafka", action="store_const", dest="broker", const="kafka")
    parser.add_argument("--check", action="append", default=[])
    parser.add_argument("--broken", choices=("loses", "doubles"), help="for checks of people's programs")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file that outcomes are merged into")
    options = parser.parse_args()
    chosen = [check for check in CHECKS if not options.check or check.__name__ in options.check]
    if options.broken:
        may_fail = PEOPLES if options.broken == "loses" else ONCE
        chosen = [check for check in chosen if check in may_fail]
        os.environ[faults.BROKEN] = options.broken
    if not set(chosen) <= {*PEOPLES} - {debezium.postgres_rows}:
        java.install()
    kind = Magnetar if options.broker == "magnetar" else Kafka
    folder = Path(tempfile.mkdtemp(prefix="magnetar-apps-"))
    outcomes: dict[str, dict[str, object]] = {}
    failed = 0
    for check in chosen:
        name = check.__name__
        (folder / name).mkdir()
        broker = kind(folder / name / "broker")
        try:
            broker.start()
            outcomes[name] = outcome(check, broker, folder / name)
        finally:
            broker.kill()
        failed += not outcomes[name]["ok"]
        if options.broken:
            note(options.json, options.broken, {name: outcomes[name]})
        else:
            keep(options.json, options.broker, outcomes)
    if options.broken:
        print(f"{failed} of {len(chosen)} fail, as they must; see {folder}")
        return 0 if failed == len(chosen) else 1
    print(f"{failed} failed; see {folder}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
