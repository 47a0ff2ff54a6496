"""The own tests of Pulsar's Python client (and of the C++ client in it), pointed at a broker that already runs.

The source is a checkout of apache/pulsar-client-python: the tests are in no package. They name one address in their
text; a copy of them gets ours in its place. The client itself is the installed ``pulsar-client``.
"""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from run import HOME

from suites.pulsar_served import KINDS as KINDS
from suites.pulsar_served import Given, served
from suites.pytest_runs import PytestRun

FILES = ("pulsar_test.py", "reader_test.py", "table_view_test.py", "schema_test.py", "asyncio_test.py")
PLACES = {
    "pulsar": "pulsar://localhost:6650",
    "pulsar+ssl": "pulsar+ssl://localhost:6651",
    "http": "http://localhost:8080",
    "https": "https://localhost:8443",
}
"""Where the tests' text says that the broker is, by scheme."""
TEST_SECONDS = 60
SUITE_SECONDS = 2400


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` (magnetar, pulsar) as the suite's script starts its broker; give where it is, as text."""
    conf = source / "tests" / "test-conf"
    given = Given(conf / "standalone-ssl.conf", conf, conf / ".htpasswd", secrets.token_bytes(32))
    with served(kind, given) as places:
        yield " ".join(f"{name}={value}" for name, value in places.items())


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped | error, why) for each test."""
    places = dict(pair.split("=", 1) for pair in bootstrap.split())
    copy = HOME / "pulsar-client-python-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source / "tests", copy)
    (copy / ".test-token.txt").write_text(places["token"])
    for name in FILES:
        text = (copy / name).read_text()
        for scheme, place in PLACES.items():
            text = text.replace(place, f"{scheme}://{places[scheme]}")
        (copy / name).write_text(text)
    return PytestRun(Path(sys.executable), copy, TEST_SECONDS, SUITE_SECONDS).outcomes(tests or FILES)
