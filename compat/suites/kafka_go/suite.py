"""kafka-go's own tests, pointed at a broker that already runs.

The source is a checkout of segmentio/kafka-go. The tests name one address in their text; a copy of the source gets ours
in its place.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from run import HOME

from suites.go_runs import GoPackage
from suites.kafka_served import AUTHORIZER, served
from suites.kafka_served import KINDS as KINDS

BROKER_VERSION = (
    "2.8.1"  # the newest of the suite's own CI; from 3.0 on it leaves out its tests of transactions
)
# What the suite's docker-compose.yml gives its broker.
SETTINGS = ("broker.id=1", "message.max.bytes=200000000", *AUTHORIZER)
PACKAGES = (".", "./topics")
PORT = "9092"
"""Of localhost, where the tests' text has the broker, and the client's where an address names none."""
SUITE_SECONDS = 1200


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


def serve(kind: str, source: Path) -> AbstractContextManager[str]:
    """Start ``kind`` of broker as the suite starts its own; give its address."""
    numbered = [each.replace("broker.id", "node.id") if kind == "kafka" else each for each in SETTINGS]
    return served(kind, *numbered, host="localhost")


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test; those of ``topics`` are told with its name before."""
    copy = HOME / "kafka-go-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    port = bootstrap.rpartition(":")[2]
    for file in [*copy.glob("*_test.go"), *(copy / "topics").glob("*_test.go"), copy / "dialer.go"]:
        file.write_text(re.sub(rf"\b{PORT}\b", port, file.read_text()))
    environment = {"KAFKA_VERSION": BROKER_VERSION, "KAFKA_SKIP_NETTEST": "1"}
    for package in PACKAGES:
        prefix = package.removeprefix(".").removeprefix("/")
        prefix += "/" if prefix else ""
        chosen = [
            test.removeprefix(prefix) for test in tests if test.rpartition("/")[0] == prefix.rstrip("/")
        ]
        go = GoPackage(copy, package, SUITE_SECONDS, ["-mod=mod"], environment)
        for test, outcome, why in go.outcomes(chosen if tests else go.listed()):
            yield prefix + test, outcome, why
