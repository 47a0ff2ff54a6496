"""The tests of franz-go's client (package ``kgo``) that talk to a broker, pointed at one that already runs.

The source is a checkout of twmb/franz-go: the tests are in its module, but need its folders.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from suites.kafka_served import KINDS as KINDS
from suites.kafka_served import served

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "auto.create.topics.enable=true",
)
RECORDS = 100_000
"""How many each chain of groups carries on; the suite's own number is five times that."""
NOT_ASKED = re.compile(r"Txn|ShareGroup|SCRAM")
"""Transactions, share groups and users come later; without them each of these would wait until its time is up."""
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
    """All tests that talk to a broker and need nothing that is not there yet."""
    found = []
    for file in sorted((source / "pkg" / "kgo").glob("*_test.go")):
        for text in re.split(r"^(?=func )", file.read_text(), flags=re.MULTILINE):
            named = re.match(r"func (Test\w+)\(t \*testing\.T\)", text)
            if named and ASKS.search(text) and not NOT_ASKED.search(named[1]):
                found.append(named[1])
    return found


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test; its parts are told of by its first broken one."""
    chosen = f"^({'|'.join(tests or every_test(source))})$"
    environment = {
        **os.environ,
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_STABLE_FETCH": "true",
        "KGO_LOG_LEVEL": "none",
    }
    done = subprocess.run(
        ["go", "test", "-json", "-vet=off", "-p=1", f"-timeout={SUITE_SECONDS}s", "-run", chosen, "./pkg/kgo"],
        cwd=source, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS + 300, check=False,
    )  # fmt: skip
    ends = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    said: dict[str, str] = {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        test = event.get("Test", "")
        if event["Action"] == "output" and (found := re.search(r"_test\.go:\d+: (.*)", event["Output"])):
            said[test.split("/")[0]] = found[1]
        if test and "/" not in test and event["Action"] in ends:
            yield test, ends[event["Action"]], said.get(test, "") if event["Action"] == "fail" else ""
    if '"Test"' not in done.stdout:
        raise RuntimeError(f"the tests could not be built: {done.stderr[-2000:]}")
