"""confluent-kafka's own integration tests, pointed at a broker and a schema registry that already run.

The source is a checkout of confluentinc/confluent-kafka-python: the tests are in no package. The client itself is the
released one. The suite's fixtures have trivup start a cluster; ``stand_in`` has a trivup that gives them the one that
runs. The suite's older tests are functions of a program, and each of those is a test here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker import standalone
from places import ELSEWHERE
from run import PYTHON

from suites.kafka_served import AUTHORIZER, in_cluster, ours, served
from suites.kafka_served import KINDS as KINDS
from suites.pytest_runs import PytestRun

STAND_IN = Path(__file__).parent / "stand_in"
# What trivup gives its brokers, and the suite's texts reckon with.
SETTINGS = (
    "num.partitions=4",
    "group.share.record.lock.duration.ms=1000",
    "group.share.min.record.lock.duration.ms=1000",
    # The suite is written for Kafka 4.2, which has no such interval, and lets a changed subscription take two seconds.
    "group.share.assignment.interval.ms=0",
    *AUTHORIZER,
    "super.users=User:ANONYMOUS",
)
# Two more folders, of share consumers that log in, want brokers of their own.
FOLDERS = ("admin", "consumer", "producer", "serialization", "share_consumer", "schema_registry")
NEW_PROTOCOL = "@consumer"
"""Ends the name of a test that is run with the group protocol of KIP-848: those of consumers are run with both."""
PROGRAM = "integration_test.py"
MESSAGES, MANY = "verify_producer", "verify_producer_performance"
PARTS = {
    "verify_producer": (),
    "verify_consumer": (MESSAGES, MANY),
    "verify_batch_consumer": (MESSAGES, MANY),
    "verify_consumer_performance": (MANY,),
    "verify_batch_consumer_performance": (MANY,),
    "verify_stats_cb": (MESSAGES, MANY),
    "verify_throttle_cb": (),
    "verify_schema_registry_client": (),
    "verify_avro": (),
    "verify_avro_explicit_read_schema": (),
}
"""The program's functions that are tests, each with those that write what it reads."""
TEST_SECONDS = 120
PART_SECONDS = 600
"""Most of the program's parts carry a million messages, one by one, in Python."""
SUITE_SECONDS = 1200


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` of broker; give its address, and its registry's where it has one."""
    if kind == "magnetar":
        with standalone(*ours(SETTINGS), protocols=("schema-registry",)) as ready:
            yield ready
        return
    if kind in ELSEWHERE:
        with in_cluster(kind, SETTINGS) as addresses:
            yield " ".join(f"{protocol}={address}" for protocol, address in addresses.items())
        return
    with served(kind, *SETTINGS) as address:
        yield address


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped | error | late, why) for each test."""
    ready = dict(pair.split("=", 1) for pair in bootstrap.split() if "=" in pair)
    broker, registry = ready.get("kafka", bootstrap), ready.get("schema-registry")
    places = {"broker": broker, "registry": f"http://{registry}" if registry else ""}
    environment = {
        **os.environ,
        "MAGNETAR_SUITE_PLACES": json.dumps(places),
        "PYTHONPATH": os.pathsep.join([str(source), str(STAND_IN)]),
    }
    folders = FOLDERS if registry else FOLDERS[:-1]
    chosen = [test for test in tests if not test.startswith(PROGRAM)] or ([] if tests else folders)
    if plain := [test for test in chosen if not test.endswith(NEW_PROTOCOL)]:
        yield from _pytest(source, environment, plain)
    new = [test.removesuffix(NEW_PROTOCOL) for test in chosen if test.endswith(NEW_PROTOCOL)]
    if new := new or ([] if tests else ["consumer"]):
        with_it = {**environment, "TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}
        for test, outcome, why in _pytest(source, with_it, new):
            yield test + NEW_PROTOCOL, outcome, why
    for part in PARTS:
        test = f"{PROGRAM}::{part}"
        if (not tests or test in tests) and (registry or not re.search("registry|avro", part)):
            yield test, *_part(source, environment, part)


def _pytest(
    source: Path, environment: Mapping[str, str], chosen: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    suite = PytestRun(
        PYTHON,
        source,
        TEST_SECONDS,
        SUITE_SECONDS,
        folder="tests/integration/",
        environment=environment,
    )
    return suite.outcomes(chosen)


def _part(source: Path, environment: Mapping[str, str], part: str) -> tuple[str, str]:
    """Run one function of the suite's program on a topic of its own; the last line of its errors says what failed."""
    command = [PYTHON, STAND_IN / "program.py", f"integration-{part}", *PARTS[part], part]
    try:
        done = subprocess.run(
            list(map(str, command)),
            cwd=source, env=environment, capture_output=True, text=True, timeout=PART_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "late", ""
    return ("passed", "") if done.returncode == 0 else ("failed", done.stderr.splitlines()[-1])
