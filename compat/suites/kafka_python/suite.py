"""kafka-python's own integration suite, pointed at a broker that already runs.

The source distribution on PyPI carries the tests but neither ``test/__init__.py`` nor ``test/service.py``; ours stand
in for them. The suite's fixtures take KAFKA_URI for a broker of one's own, and KAFKA_VERSION for what it speaks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from run import HERE, HOME, PYTHON

from suites.kafka_served import AUTHORIZER, served
from suites.kafka_served import KINDS as KINDS
from suites.pytest_runs import PytestRun

VERSION = "3.0.12"
BROKER_VERSION = "4.3.0"
# What the suite gives the brokers that it starts itself.
SETTINGS = (
    "num.partitions=4",
    "group.min.session.timeout.ms=1000",
    "group.initial.rebalance.delay.ms=0",
    *AUTHORIZER,
)
KAFKAS = ("node.id=0",)  # test_create_partitions names broker 0, as the suite's own are numbered
TEST_SECONDS = 60
SUITE_SECONDS = 1200


def default_source() -> Path:
    """The unpacked source distribution, fetched by pip on first use."""
    source = HOME / f"kafka_python-{VERSION}"
    if not source.exists():
        subprocess.run([str(HERE / "install.sh"), "python"], check=True)
        fetch = [PYTHON, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", HOME]
        subprocess.run([*map(str, fetch), f"kafka-python=={VERSION}"], check=True)
        archive = next(HOME.glob(f"kafka[_-]python-{VERSION}.tar.gz"))
        # Python's own tarfile has no safe way to unpack before 3.11.4, and Debian 12 has 3.11.2.
        subprocess.run(["tar", "--extract", "--no-same-owner", f"--file={archive}"], check=True, cwd=HOME)
    return source


def serve(kind: str, source: Path) -> AbstractContextManager[str]:
    """Start ``kind`` of broker as the suite starts its own; give its address."""
    return served(kind, *SETTINGS, *(KAFKAS if kind == "kafka" else ()))


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped | error, why) for each test."""
    _complete(source / "test")
    environment = {
        **os.environ,
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": BROKER_VERSION,
        "KAFKA_ROOT": str(source),  # the fixtures ask for some directory, and use it only to start brokers
    }
    suite = PytestRun(
        PYTHON, source, TEST_SECONDS, SUITE_SECONDS, folder="test/integration/", environment=environment
    )
    return suite.outcomes(tests or [""])


def _complete(directory: Path) -> None:
    (directory / "__init__.py").touch()
    if not (directory / "service.py").exists():
        shutil.copy(HERE / "suites" / "kafka_python" / "service.py", directory)
