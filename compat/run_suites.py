#!/usr/bin/env python3
"""Run the test suites of Kafka's clients against a broker, and fail if a test of their allow-lists fails.

    compat/run_suites.py --magnetar --suite kafka-python
    compat/run_suites.py --magnetar --place cluster --suite kafka-python     in a cluster; proxy: through a proxy
    compat/run_suites.py --kafka --suite kafka-python --all             the same tests on Apache Kafka
    compat/run_suites.py --magnetar --suite librdkafka --source DIR     a built tree of librdkafka
    compat/run_suites.py --magnetar --suite pulsar-python --source DIR  a checkout of pulsar-client-python
    compat/run_suites.py --pulsar --suite pulsar-python --source DIR --all   the same tests on Apache Pulsar
    compat/run_suites.py --magnetar --suite pulsar-go --source DIR      a checkout of pulsar-client-go
    compat/run_suites.py --magnetar --suite confluent-python --source DIR    a checkout of confluent-kafka-python
    compat/run_suites.py --kafka --suite confluent-python --source DIR --all  the same tests on Apache Kafka
    compat/run_suites.py --magnetar --suite kafka-go --source DIR       a checkout of kafka-go
    compat/run_suites.py --magnetar --suite kafkajs --source DIR        a checkout of kafkajs
    compat/run_suites.py --magnetar --suite rskafka --source DIR        a checkout of rskafka
    compat/run_suites.py --magnetar --suite rust-rdkafka --source DIR   a checkout of rust-rdkafka
    compat/run_suites.py --magnetar --suite sarama --source DIR         a checkout of Sarama
    compat/run_suites.py --magnetar --suite aiokafka --source DIR       a checkout of aiokafka
    compat/run_suites.py --magnetar --suite kafka-java                  Kafka's own Java tests, which Maven brings
    compat/run_suites.py --magnetar --suite pulsar-java                 Pulsar's own Java tests, which Maven brings
    compat/run_suites.py --magnetar --suite pulsar-cpp --source DIR     a checkout of pulsar-client-cpp
    compat/run_suites.py --magnetar --suite pulsar-rs --source DIR      a checkout of pulsar-rs
    compat/run_suites.py --bootstrap HOST:PORT --suite librdkafka --source DIR --all
    ... --test 0012_produce_consume

What --all and --test find is kept in compat/results/suites.json.
Each suite's directory holds allowlist.txt (must pass) and FINDINGS.md (what does not, and why). A test whose line says
that "a second try is allowed" fails now and then by a fault of its client, which FINDINGS.md names.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

from halves import PEERS
from places import PLACES
from run import HERE
from suites.aiokafka import suite as aiokafka
from suites.confluent_python import suite as confluent_python
from suites.franz_go import suite as franz_go
from suites.kafka_go import suite as kafka_go
from suites.kafka_java import suite as kafka_java
from suites.kafka_python import suite as kafka_python
from suites.kafkajs import suite as kafkajs
from suites.librdkafka import suite as librdkafka
from suites.pulsar_cpp import suite as pulsar_cpp
from suites.pulsar_go import suite as pulsar_go
from suites.pulsar_java import suite as pulsar_java
from suites.pulsar_python import suite as pulsar_python
from suites.pulsar_rs import suite as pulsar_rs
from suites.rskafka import suite as rskafka
from suites.rust_rdkafka import suite as rust_rdkafka
from suites.sarama import suite as sarama
from versions import version

SUITES: dict[str, ModuleType] = {
    "aiokafka": aiokafka,
    "confluent-python": confluent_python,
    "franz-go": franz_go,
    "kafka-go": kafka_go,
    "kafka-java": kafka_java,
    "kafka-python": kafka_python,
    "kafkajs": kafkajs,
    "librdkafka": librdkafka,
    "pulsar-cpp": pulsar_cpp,
    "pulsar-go": pulsar_go,
    "pulsar-java": pulsar_java,
    "pulsar-python": pulsar_python,
    "pulsar-rs": pulsar_rs,
    "rskafka": rskafka,
    "rust-rdkafka": rust_rdkafka,
    "sarama": sarama,
}

SECOND_TRY = "a second try is allowed"


def allowed(suite: ModuleType, comment: str = "") -> list[str]:
    """The tests that must pass; a line may end with a comment, and may have to hold one."""
    lines = (Path(suite.__file__ or "").parent / "allowlist.txt").read_text().splitlines()
    return [words[0] for line in lines if comment in line and (words := line.split("#")[0].split())]


def kinds(suite: ModuleType) -> Sequence[str]:
    """The brokers that can be started for a suite."""
    found: Sequence[str] = suite.KINDS
    return found


def kind(options: argparse.Namespace) -> str:
    """Which broker is started for the run."""
    return next((peer for peer in PEERS if getattr(options, peer)), PLACES[options.place])


def serving(suite: ModuleType, options: argparse.Namespace, source: Path) -> AbstractContextManager[str]:
    """The address to run against: of a broker that is started for it, as the suite wants it, or the one named."""
    if options.bootstrap:
        return contextlib.nullcontext(str(options.bootstrap))
    serve: Callable[[str, Path], AbstractContextManager[str]] = suite.serve
    return serve(kind(options), source)


def keep_outcomes(suite: str, broker: str, outcomes: dict[str, str], *, whole: bool) -> None:
    """Keep the outcome of each test for compat/report.py; those that a run of some did not ask keep theirs."""
    file = HERE / "results" / "suites.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    earlier = {} if whole else results.get(suite, {}).get(broker, {}).get("outcomes", {})
    kept = {"date": today, "broker": version(broker), "outcomes": earlier | outcomes}
    results.setdefault(suite, {})[broker] = kept
    file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    where.add_argument("--magnetar", action="store_true", help="start a standalone broker for the run")
    for peer, name_of_it in PEERS.items():
        suited = [name for name, suite in SUITES.items() if peer in kinds(suite)]
        help_ = f"start {name_of_it} for the run ({', '.join(suited)})"
        where.add_argument(f"--{peer}", action="store_true", help=help_)
    parser.add_argument("--place", choices=list(PLACES), default="standalone", help="what --magnetar starts")
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
    keeps = (options.all or options.test) and not options.bootstrap

    def run_tests(bootstrap: str, tests: list[str]) -> None:
        for test, outcome, why in suite.run(source.resolve(), bootstrap, tests):
            outcomes[test] = outcome
            print(f"{outcome:8} {test} {why}", flush=True)
            if keeps:  # as they come: a suite of an hour may be cut short
                keep_outcomes(options.suite, kind(options), outcomes, whole=False)

    if not options.bootstrap and kind(options) not in kinds(suite):
        parser.error(f"{options.suite} cannot be run on {PEERS.get(kind(options), kind(options))}")
    with serving(suite, options, source.resolve()) as bootstrap:
        run_tests(bootstrap, [] if options.all else must_pass)
        if again := [test for test in allowed(suite, SECOND_TRY) if outcomes.get(test, "passed") != "passed"]:
            print(f"once more, as their clients lose races of their own: {again}")
            run_tests(bootstrap, again)
    if keeps:
        keep_outcomes(options.suite, kind(options), outcomes, whole=options.all)
    broken = [test for test in must_pass if outcomes.get(test) != "passed"]
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{passed} of {len(outcomes)} passed; of the allow-list: {broken or 'all'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
