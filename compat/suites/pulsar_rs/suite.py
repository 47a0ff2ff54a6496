"""The own tests of Pulsar's Rust client, pointed at a broker that already runs.

The source is a checkout of streamnative/pulsar-rs. Its tests name addresses in their text; a copy of the source gets
ours in their place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker import standalone
from run import HOME

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.pulsar import Pulsar

KINDS = ("magnetar", "pulsar")
PLACES = {"pulsar": "127.0.0.1:6650", "http": "127.0.0.1:8080"}
"""Where the tests' text has the broker."""
BUILD_SECONDS = 2400
SUITE_SECONDS = 900


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` of broker as it comes; give where it is, as text."""
    if kind == "magnetar":
        with standalone(protocols=("pulsar", "http")) as ready:
            yield ready
        return
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-") as directory,
        Pulsar(Path(directory) / "data") as broker,
    ):
        yield f"pulsar={broker.address} http={broker.http_address}"


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test."""
    found = dict(pair.split("=", 1) for pair in bootstrap.split())
    copy = HOME / "pulsar-rs-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "target"))
    for file in (copy / "src").rglob("*.rs"):
        text = file.read_text()
        for scheme, place in PLACES.items():
            text = text.replace(place, found[scheme])
        file.write_text(text)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(HOME / "pulsar-rs-target")}
    command = ["cargo", "test", "--lib"]
    subprocess.run(
        [*command, "--no-run"],
        cwd=copy,
        env=environment,
        capture_output=True,
        timeout=BUILD_SECONDS,
        check=True,
    )
    done = subprocess.run(
        [*command, "--", "--test-threads=2", "--exact", *tests],
        cwd=copy, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS, check=False,
    )  # fmt: skip
    ends = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    # What a test logs may stand between its name and its end.
    failed = set(re.findall(r"^    (\S+)$", done.stdout.rpartition("failures:")[2], re.MULTILINE))
    for test, end in re.findall(r"^test (\S+) \.\.\.(?: (ok|FAILED|ignored))?", done.stdout, re.MULTILINE):
        outcome = ends[end] if end else "failed" if test in failed else "passed"
        why = re.search(rf"^thread '{test}'.*\n(.*)", done.stdout, re.MULTILINE)
        yield test, outcome, why[1] if why and outcome == "failed" else ""
