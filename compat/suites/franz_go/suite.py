"""The tests of franz-go's client (package ``kgo``) that talk to a broker, pointed at one that already runs.

The source is a checkout of twmb/franz-go: the tests are in its module, but need its folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from suites.go_runs import GoPackage
from suites.kafka_served import KINDS as KINDS
from suites.kafka_served import served

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "auto.create.topics.enable=true",
)
RECORDS = 100_000
"""How many each chain of groups carries on; the suite's own number is five times that."""
ASKS = re.compile(r"newTestClient|testClientOpts|getSeedBrokers|tmpTopic")
"""What is in the text of a test that talks to a broker."""
SUITE_SECONDS = 900


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


def serve(kind: str, source: Path) -> AbstractContextManager[str]:
    """Start ``kind`` of broker; give its address."""
    return served(kind, *SETTINGS)


def every_test(source: Path) -> list[str]:
    """All tests that talk to a broker."""
    found = []
    for file in sorted((source / "pkg" / "kgo").glob("*_test.go")):
        for text in re.split(r"^(?=func )", file.read_text(), flags=re.MULTILINE):
            named = re.match(r"func (Test\w+)\(t \*testing\.T\)", text)
            if named and ASKS.search(text):
                found.append(named[1])
    return found


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test; its parts are told of by its last broken one."""
    environment = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_STABLE_FETCH": "true",
        "KGO_LOG_LEVEL": "none",
    }
    package = GoPackage(source, "./pkg/kgo", SUITE_SECONDS, ["-p=1"], environment)
    return package.outcomes(tests or every_test(source))
