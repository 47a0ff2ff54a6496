#!/usr/bin/env python3
"""Run the test suites of Kafka's clients against a broker, and fail if a test of their allow-lists fails.

    compat/run_suites.py --magnetar --suite kafka-python
    compat/run_suites.py --magnetar --suite librdkafka --source DIR     a built tree of librdkafka
    compat/run_suites.py --magnetar --suite pulsar-python --source DIR  a checkout of pulsar-client-python
    compat/run_suites.py --bootstrap HOST:PORT --suite librdkafka --source DIR --all
    ... --test 0012_produce_consume

Each suite's directory holds allowlist.txt (must pass) and FINDINGS.md (what does not, and why).
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from types import ModuleType

from broker import standalone
from run import HERE
from suites.kafka_python import suite as kafka_python
from suites.librdkafka import suite as librdkafka
from suites.pulsar_python import suite as pulsar_python

SUITES: dict[str, ModuleType] = {
    "kafka-python": kafka_python,
    "librdkafka": librdkafka,
    "pulsar-python": pulsar_python,
}


def allowed(suite: ModuleType) -> list[str]:
    """The tests that must pass; a line may end with a comment."""
    lines = (Path(suite.__file__ or "").parent / "allowlist.txt").read_text().splitlines()
    return [words[0] for line in lines if (words := line.split("#")[0].split())]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    where.add_argument("--magnetar", action="store_true", help="start a standalone broker for the run")
    parser.add_argument("--suite", choices=list(SUITES), required=True)
    parser.add_argument("--source", type=Path, help="the suite's source tree")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--all", action="store_true", help="every test there is; only the allow-list decides the status"
    )
    which.add_argument("--test", action="append", default=[], help="only this test")
    options = parser.parse_args()

    suite = SUITES[options.suite]
    source = options.source or suite.default_source()
    if source is None:
        parser.error(f"--source is needed: see {HERE.name}/suites/{options.suite}/FINDINGS.md")
    must_pass = options.test or allowed(suite)
    outcomes: dict[str, str] = {}
    with (
        standalone(*suite.SETTINGS, protocols=getattr(suite, "PROTOCOLS", ()))
        if options.magnetar
        else contextlib.nullcontext(options.bootstrap) as bootstrap
    ):
        for test, outcome, why in suite.run(source.resolve(), bootstrap, [] if options.all else must_pass):
            outcomes[test] = outcome
            print(f"{outcome:8} {test} {why}", flush=True)
    broken = [test for test in must_pass if outcomes.get(test) != "passed"]
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{passed} of {len(outcomes)} passed; of the allow-list: {broken or 'all'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
