"""The own tests of Pulsar's Go client, pointed at a broker that already runs.

The source is a checkout of apache/pulsar-client-go. The tests name addresses in their text; a copy of the source gets
ours in their place. Tests that start a broker of their own want Docker, and fail without it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from run import HOME

from suites.go_runs import GoPackage
from suites.pulsar_served import KINDS as KINDS
from suites.pulsar_served import Given, served

MOVED = ("pulsar", "pulsaradmin")
"""In which folders the text names addresses."""
PACKAGES = ("pulsar", "pulsaradmin/pkg/admin")
"""Whose tests are run; a test of a package other than the first is told with the package before its name."""
PORTS = {"pulsar": "6650", "pulsar+ssl": "6651", "http": "8080", "https": "8443"}
"""On which of localhost's ports the tests' text has the broker, by scheme."""
SUITE_SECONDS = 2400


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` (magnetar, pulsar) as the suite's script starts its broker; give where it is, as text."""
    ours = source / "integration-tests"
    certificates = ours / "certs"
    own = {
        "tlsCertFile": str(certificates / "client-cert.pem"),
        "tlsKeyFile": str(certificates / "client-key.pem"),
    }
    given = Given(
        ours / "conf" / "standalone.conf",
        certificates,
        ours / "conf" / ".htpasswd",
        (ours / "tokens" / "secret.key").read_bytes(),
        {
            "brokerClientTrustCertsFilePath": str(certificates / "cacert.pem"),
            "brokerClientAuthenticationParameters": json.dumps(own),
        },
    )
    with served(kind, given) as places:
        yield " ".join(f"{name}={value}" for name, value in places.items())


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test; parts of a test are not told of."""
    places = dict(pair.split("=", 1) for pair in bootstrap.split())
    copy = HOME / "pulsar-client-go-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    for folder in MOVED:
        for file in (copy / folder).rglob("*.go"):
            file.write_text(_moved(file.read_text(), places))
    for package in PACKAGES:
        prefix = "" if package == PACKAGES[0] else f"{package}/"
        chosen = [
            test.removeprefix(prefix) for test in tests if test.rpartition("/")[0] == prefix.rstrip("/")
        ]
        go = GoPackage(copy, f"./{package}", SUITE_SECONDS, says=r"Error:\s+(.*)")
        for test, outcome, why in go.outcomes(chosen if tests else go.listed()):
            yield prefix + test, outcome, why


def _moved(text: str, places: dict[str, str]) -> str:
    for scheme, port in PORTS.items():
        text = re.sub(rf"\blocalhost:{port}\b", places[scheme], text)
    return text
