"""The own tests of Pulsar's Rust client, pointed at a broker that already runs.

The source is a checkout of streamnative/pulsar-rs. Its tests name addresses in their text; a copy of the source gets
ours in their place.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from broker import standalone
from run import HOME

from suites.cargo_runs import CargoRun

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
    suite = CargoRun(copy, HOME / "pulsar-rs-target", BUILD_SECONDS, SUITE_SECONDS)
    return suite.outcomes(["--lib"], tests, ["--test-threads=2"])
