"""aiokafka's own tests, which have Docker run a broker for them: ``stand_in`` has a Docker that starts ours, or Kafka.

The source is a checkout of aio-libs/aiokafka. The client itself is the released one, for which `install.sh` makes an
environment; its folder is left out of a copy of the source, in which the tests make their certificates.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from run import HERE, HOME, PYTHON

from suites.pytest_runs import PytestRun

KINDS = ("magnetar", "kafka")
STAND_IN = Path(__file__).parent / "stand_in"
IMAGE = "kafka:2.13_2.8.1"
"""The newest that the suite knows; its tests ask for a version's features by the name."""
MODULES = (
    "test_admin.py", "test_client.py", "test_conn.py", "test_consumer.py", "test_coordinator.py", "test_fetcher.py",
    "test_pep492.py", "test_producer.py", "test_sasl.py", "test_sender.py", "test_transactional_consumer.py",
    "test_transactional_producer.py",
)  # fmt: skip
"""Those that have a broker."""
TEST_SECONDS = 120
SUITE_SECONDS = 2400


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Give the kind of broker that the suite starts; it says itself at which ports."""
    yield kind


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped | error, why) for each test; ``bootstrap`` is a kind of broker."""
    copy = HOME / "aiokafka-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "aiokafka"))
    server = ("env", "-C", HERE, sys.executable, "-m", "suites.aiokafka.broker", bootstrap)
    environment = {
        **os.environ,
        "MAGNETAR_SUITE": shlex.join(map(str, server)),
        "MAGNETAR_SUITE_TOOLS": shlex.join(["bash", str(HERE / "kafka-tools.sh")]),
        "PYTHONPATH": str(STAND_IN),
        "PATH": os.pathsep.join([str(STAND_IN / "bin"), os.environ["PATH"]]),
    }
    options = (
        f"--docker-image={IMAGE}",
        "--no-pull",
        "--override-ini=asyncio_default_fixture_loop_scope=function",
        "--override-ini=filterwarnings=default",
    )
    suite = PytestRun(
        PYTHON, copy, TEST_SECONDS, SUITE_SECONDS, folder="tests/", options=options, environment=environment
    )
    return suite.outcomes(tests or MODULES)
