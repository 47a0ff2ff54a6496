"""librdkafka's own broker tests: one process per test, in librdkafka's quick mode, each with a time limit."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from suites.kafka_served import AUTHORIZER, served
from suites.kafka_served import KINDS as KINDS

BROKER_VERSION = "4.4.0"
SETTINGS = ("num.partitions=4", "group.share.min.record.lock.duration.ms=1000", *AUTHORIZER)
TEST_SECONDS = 300
SHARE_TEST_SECONDS = 900
"""One program each, with dozens of tests of share consumers in it."""
# Those of users and certificates want brokers of their own, one wants replicas on others; mocks need no broker.
NOT_ASKED = re.compile(r"auth|sasl|ssl|fetch_from_follower|_mock|_performance")
SHARES = "share_consumer"
NEW_PROTOCOL = "@consumer"
"""Ends the name of a test that is run with the group protocol of KIP-848: each that subscribes is run with both."""


def default_source() -> Path | None:
    """There is none: the tests are part of librdkafka's source only (see FINDINGS.md)."""
    return None


def serve(kind: str, source: Path) -> AbstractContextManager[str]:
    """Start ``kind`` of broker; give its address."""
    return served(kind, *SETTINGS)


def every_test(source: Path) -> list[str]:
    """All tests that need a broker and nothing that is not there yet, in the runner's own order."""
    listing = (source / "tests" / "test.c").read_text()
    table = listing[listing.index("struct test tests[] = {") :]
    entries = re.findall(r"_TEST\((\d{4}_\w+),\s*([\w |]+)", table[: table.index("\n};")])
    names = [
        name
        for name, flags in entries
        if "TEST_F_LOCAL" not in flags and not NOT_ASKED.search(name) and name < "1000"
    ]
    return names + [
        name + NEW_PROTOCOL for name in names if _subscribes(source / "tests", name) and SHARES not in name
    ]


def _subscribes(tests: Path, name: str) -> bool:
    return any("subscribe(" in file.read_text() for file in tests.glob(f"{name[:4]}-*.c*"))


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped | late, the end of its output) for each test."""
    for test in tests or every_test(source):
        outcome, output = _one(source / "tests", bootstrap, test)
        yield test, outcome, "" if outcome == "passed" else _interesting(output)


def _one(directory: Path, bootstrap: str, name: str) -> tuple[str, str]:
    test = name.removesuffix(NEW_PROTOCOL)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as configuration:
        configuration.write(f"metadata.broker.list={bootstrap}\ntest.timeout.multiplier=2\n")
        configuration.flush()
        environment = {
            **os.environ,
            "TESTS": test,
            "RDKAFKA_TEST_CONF": configuration.name,
            "TEST_KAFKA_VERSION": BROKER_VERSION,
            "KAFKA_PATH": str(Path(__file__).parent / "kafka"),
            "BROKERS": bootstrap,
            "LD_LIBRARY_PATH": "../src:../src-cpp",
        }
        if test != name:
            environment["TEST_CONSUMER_GROUP_PROTOCOL"] = "consumer"
        command = ["./test-runner", "-p1", "-E", "-L"]  # -E: no socket emulation, -L: no local tests
        if SHARES not in name:  # whose tests are all but left out by the quick mode
            command.append("-Q")
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env=environment,
                capture_output=True,
                timeout=SHARE_TEST_SECONDS if SHARES in name else TEST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return "late", (late.stdout or b"").decode(errors="replace")
    output = (done.stdout + done.stderr).decode(errors="replace")
    summary = re.search(rf"\|(?:\x1b\[\d+m)? {test}\s*\|\s*(\w+)", output)
    word = summary[1].lower() if summary else "failed"
    return {"passed": "passed", "skipped": "skipped"}.get(word, "failed"), output


def _interesting(output: str) -> str:
    lines = [re.sub(r"\x1b\[\d*m", "", line).strip() for line in output.splitlines()]
    wanted = [line for line in lines if re.search(r"FAIL\b|: FAIL|SKIP|assert", line)]
    return " / ".join(dict.fromkeys(wanted or lines[-3:]))[:400]
