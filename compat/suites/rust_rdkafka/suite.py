"""rust-rdkafka's own integration tests, pointed at a broker that already runs.

The source is a checkout of fede1024/rust-rdkafka. Some of its tests name an address in their text; a copy of the source
gets ours in its place, and librdkafka as the crate ``rdkafka-sys`` brings it: a checkout has it only as a submodule.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from run import HOME

from suites.cargo_runs import CargoRun
from suites.kafka_served import KINDS as KINDS
from suites.kafka_served import served

# What the suite's docker-compose.yaml gives its broker.
SETTINGS = ("num.partitions=3", "broker.id=0")
PROGRAM_SECONDS = 600
BUILD_SECONDS = 1800


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


def serve(kind: str, source: Path) -> AbstractContextManager[str]:
    """Start ``kind`` of broker as the suite starts its own; give its address."""
    numbered = [each.replace("broker.id", "node.id") if kind == "kafka" else each for each in SETTINGS]
    return served(kind, *numbered)


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (program::test, passed | failed | skipped | late, why) for each test."""
    copy = HOME / "rust-rdkafka-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "target"))
    _change(copy / "Cargo.toml", r'path = "rdkafka-sys", ', "")
    _change(copy / "Cargo.toml", r"members = .*", "members = []")
    for file in (copy / "tests").glob("*.rs"):
        _change(file, r'"localhost"\)', f'"{bootstrap}")')
        _change(file, r"\b9092\b", bootstrap.rpartition(":")[2])
    for program in sorted(file.stem for file in (copy / "tests").glob("test_*.rs")):
        chosen = [test.partition("::")[2] for test in tests if test.startswith(f"{program}::")]
        if chosen or not tests:
            yield from _program(copy, bootstrap, program, chosen)


def _program(
    copy: Path, bootstrap: str, program: str, chosen: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    suite = CargoRun(
        copy, HOME / "rust-rdkafka-target", BUILD_SECONDS, PROGRAM_SECONDS, {"KAFKA_HOST": bootstrap}
    )
    try:
        for test, outcome, why in suite.outcomes(["--features", "cmake-build", "--test", program], chosen):
            yield f"{program}::{test}", outcome, why
    except subprocess.TimeoutExpired as late:
        yield f"{program}::", "late", (late.stdout or b"").decode(errors="replace")[-400:]


def _change(file: Path, old: str, new: str) -> None:
    file.write_text(re.sub(old, new, file.read_text()))
