"""The own tests of Pulsar's C++ client, pointed at a broker that is started where their text says that it is.

The source is a checkout of apache/pulsar-client-cpp; it is built, with its tests, on first use.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from run import HOME

from suites.gtest_runs import GoogleTests
from suites.pulsar_served import ANYBODY, GRANTS, Given, Grants, served

KINDS = ("magnetar", "pulsar")
PORTS = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}
"""Where the tests' text says that the broker is, by scheme: it would take minutes to build them for others."""
_OPTIONS = (
    "-DINTEGRATE_VCPKG=OFF", "-DUSE_ASIO=OFF", "-DBUILD_DYNAMIC_LIB=OFF", "-DBUILD_PERF_TOOLS=OFF",
    "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_CXX_FLAGS=-O1 -g0",
)  # fmt: skip
_BUILD_SECONDS = 3000
_TEST_SECONDS = 120
_REPLICATED: dict[str, object] = {"auth_policies": ANYBODY, "replication_clusters": ["standalone"]}
_AUTH = {"token-principal": ["produce", "consume"], "chained-client": ["produce", "consume"]}
_GRANTS: Grants = (
    *(grant for grant in GRANTS if grant[0] != "namespaces/private/auth"),
    ("namespaces/public/default-3", _REPLICATED),
    ("namespaces/public/default-4", {**_REPLICATED, "encryption_required": True}),
    ("namespaces/public/test-backlog-quotas", _REPLICATED),
    (
        "namespaces/private/auth",
        {"auth_policies": {"namespace_auth": _AUTH}, "replication_clusters": ["standalone"]},
    ),
)
_ASKS = re.compile(r"localhost:\d|serviceUrl|lookupUrl")
_NAMED = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)\s*,", re.MULTILINE)


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` (magnetar, pulsar) as the suite's script starts its broker; give where it is, as text."""
    conf = source / "test-conf"
    given = Given(
        conf / "standalone-ssl.conf",
        conf,
        conf / ".htpasswd",
        secrets.token_bytes(32),
        ports=PORTS,
        grants=_GRANTS,
    )
    with served(kind, given) as places:
        yield " ".join(f"{name}={value}" for name, value in places.items())


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test."""
    places = dict(pair.split("=", 1) for pair in bootstrap.split())
    copy, built = HOME / "pulsar-client-cpp-tests", HOME / "pulsar-client-cpp-built"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    (copy / ".test-token.txt").write_text(places["token"])
    for command in (
        ["cmake", "-S", copy, "-B", built, *_OPTIONS],
        ["cmake", "--build", built, "--target", "pulsar-tests", "--parallel", "2"],
    ):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise RuntimeError(f"it was not built:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    program = GoogleTests(built / "tests" / "pulsar-tests", copy, _TEST_SECONDS)
    return program.outcomes(tests or _that_ask(copy, program.listed()))


def _that_ask(source: Path, tests: Sequence[str]) -> list[str]:
    """Return the tests of the files that speak of a broker: the others are of the client alone."""
    files = [*(source / "tests").glob("*.cc"), *(source / "tests" / "c").glob("*.cc")]
    asking = {
        suite for file in files if _ASKS.search(text := file.read_text()) for suite in _NAMED.findall(text)
    }
    return [test for test in tests if asking & set(re.split(r"[./]", test))]
