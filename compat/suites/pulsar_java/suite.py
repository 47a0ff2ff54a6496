"""Pulsar's own Java tests of clients and a broker, with clients of a broker that serves already.

They come from Maven, compiled, with a base class that starts a broker in their process. The one in ``base`` takes its
place: see FINDINGS.md. Each class has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import ClassVar

from broker import standalone
from run import HERE, HOME

from suites.java_runs import by_class, jars, of_class

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.pulsar import Pulsar, pulsar_home

KINDS = ("magnetar", "pulsar")
CLASS_S = 300
"""What a class of tests may take."""
AT_ONCE = 4
"""Brokers, each for one class at a time: tests mostly wait."""
OPENED = ("java.lang", "java.util", "java.util.concurrent", "sun.net")
"""Packages of Java's own that the tests look into."""
_BASE = Path(__file__).parent / "base"


class ForTests(Pulsar):
    """Tests delete what they have made, whatever is in it."""

    settings: ClassVar[Mapping[str, str]] = {
        "forceDeleteNamespaceAllowed": "true",
        "forceDeleteTenantAllowed": "true",
        "transactionCoordinatorEnabled": "true",
    }


def default_source() -> Path | None:
    """The tests come from Maven: there is no source."""
    return HERE


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start some brokers of ``kind``, since tests delete all that their broker has; give where they are, as text."""
    with ExitStack() as stack:
        yield ";".join(stack.enter_context(_one(kind)) for _ in range(AT_ONCE))


@contextmanager
def _one(kind: str) -> Iterator[str]:
    if kind == "magnetar":
        with standalone(protocols=("pulsar", "http")) as ready:
            yield ready
        return
    with tempfile.TemporaryDirectory(prefix="pulsar-") as data, ForTests(Path(data) / "data") as broker:
        yield f"pulsar={broker.address} http={broker.http_address}"


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test.

    A test with several sets of values, or that was tried twice, is told of once: failed if it ever did.
    """
    wanted = by_class(tests)
    java, brokers = _java(), Queue[dict[str, str]]()
    for each in bootstrap.split(";"):
        brokers.put(dict(pair.split("=", 1) for pair in each.split()))

    def run_class(name: str) -> list[tuple[str, str, str]]:
        broker = brokers.get()
        there = {
            "MAGNETAR_PULSAR": f"pulsar://{broker['pulsar']}",
            "MAGNETAR_HTTP": f"http://{broker['http']}",
        }
        try:
            return of_class(
                java, name, "org.apache.pulsar.client.", wanted[name], {**os.environ, **there}, CLASS_S
            )
        finally:
            brokers.put(broker)

    names = list(wanted) or (Path(__file__).parent / "classes.txt").read_text().split()
    with ThreadPoolExecutor(brokers.qsize()) as pool:
        for found in as_completed([pool.submit(run_class, each) for each in names]):
            yield from found.result()


def _java() -> list[str]:
    """Return the command that runs a class of tests."""
    libs = jars("pulsar-java-tests")
    classes = HOME / "pulsar-java-tests-base"
    classes.mkdir(parents=True, exist_ok=True)
    at_hand = f"{pulsar_home() / 'lib'}/*{os.pathsep}{libs}/*"
    sources = [str(each) for each in _BASE.rglob("*.java")]
    subprocess.run(
        ["javac", "-nowarn", "-Xlint:none", "-d", str(classes), "-cp", at_hand, *sources], check=True
    )
    return [
        *("java", "-Xmx1g", "-XX:+UseSerialGC"),
        *(word for each in OPENED for word in ("--add-opens", f"java.base/{each}=ALL-UNNAMED")),
        *("-cp", f"{classes}{os.pathsep}{at_hand}", "RunTests"),
    ]
