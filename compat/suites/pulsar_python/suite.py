"""The own tests of Pulsar's Python client (and of the C++ client in it), pointed at a broker that already runs.

The source is a checkout of apache/pulsar-client-python: the tests are in no package. They name one address in their
text; a copy of them gets ours in its place. The client itself is the installed ``pulsar-client``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from run import HOME

SETTINGS = ("auto.create.namespaces.enable=false",)
PROTOCOLS = ("pulsar", "http")
FILES = ("pulsar_test.py", "reader_test.py", "table_view_test.py", "schema_test.py", "asyncio_test.py")
TEST_SECONDS = 25
SUITE_SECONDS = 1200


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped | error, why) for each test."""
    served = dict(pair.split("=") for pair in bootstrap.split())
    copy = HOME / "pulsar-client-python-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source / "tests", copy)
    for name in FILES:
        text = (copy / name).read_text()
        text = text.replace("pulsar://localhost:6650", f"pulsar://{served['pulsar']}")
        (copy / name).write_text(text.replace("http://localhost:8080", f"http://{served['http']}"))
    _prepare(f"http://{served['http']}")
    options = [
        "-p",
        "no:cacheprovider",
        f"--timeout={TEST_SECONDS}",
        "--timeout-method=signal",
        "-rA",
        "--tb=line",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *(tests or FILES)],
        cwd=copy, capture_output=True, text=True, timeout=SUITE_SECONDS, check=False,
    )  # fmt: skip
    pattern = r"^(PASSED|FAILED|SKIPPED|ERROR) (?:\[\d+\] )?(\S+\.py::\S+)(?: -)?(.*)$"
    for outcome, test, why in re.findall(pattern, done.stdout, re.M):
        yield test, outcome.lower(), why.strip()


def _prepare(url: str) -> None:
    """Make the namespaces that the client's own script makes on its broker."""
    from urllib.request import Request, urlopen

    for path in ("tenants/private", "namespaces/public/default-2", "namespaces/private/auth"):
        body = (
            b'{"allowedClusters": ["standalone"], "adminRoles": []}' if path.startswith("tenants") else b"{}"
        )
        request = Request(f"{url}/admin/v2/{path}", body, {"Content-Type": "application/json"}, method="PUT")
        urlopen(request, timeout=10).close()
