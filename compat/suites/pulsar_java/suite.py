"""Pulsar's own Java tests of clients and a broker, with clients of a broker that serves already.

They come from Maven, compiled, with a base class that starts a broker in their process. The one in ``base`` takes its
place: see FINDINGS.md. Each class has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import ClassVar

from broker import standalone
from run import HERE, HOME

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks.peers.pulsar import Pulsar, pulsar_home

KINDS = ("magnetar", "pulsar")
CLASS_S = 300
"""What a class of tests may take."""
AT_ONCE = 4
"""Brokers, each for one class at a time: tests mostly wait."""
NEVER_ENDED = "it never ended"
OPENED = ("java.lang", "java.util", "java.util.concurrent", "sun.net")
"""Packages of Java's own that the tests look into."""
_BASE = Path(__file__).parent / "base"
_WORST = ("failed", "passed", "skipped")


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
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for test in tests:
        name, _, method = test.rpartition(".")
        wanted[name].add(method)
    java, brokers = _java(), Queue[dict[str, str]]()
    for each in bootstrap.split(";"):
        brokers.put(dict(pair.split("=", 1) for pair in each.split()))

    def of_class(name: str) -> list[tuple[str, str, str]]:
        broker = brokers.get()
        try:
            return _of_class(java, broker, name, wanted[name])
        finally:
            brokers.put(broker)

    names = list(wanted) or (Path(__file__).parent / "classes.txt").read_text().split()
    with ThreadPoolExecutor(brokers.qsize()) as pool:
        for found in as_completed([pool.submit(of_class, each) for each in names]):
            yield from found.result()


def _of_class(
    java: Sequence[str], broker: dict[str, str], name: str, wanted: Collection[str]
) -> list[tuple[str, str, str]]:
    outcomes = {f"{name}.{each}": ("failed", NEVER_ENDED) for each in wanted}
    what = f"org.apache.pulsar.client.{name}" + ("#" + ",".join(sorted(wanted)) if wanted else "")
    for outcome, method, why in _said(java, broker, what):
        test = f"{name}.{method}"
        before = outcomes.get(test)
        if before is None or before[1] == NEVER_ENDED or _WORST.index(outcome) < _WORST.index(before[0]):
            outcomes[test] = outcome, why
    return [(test, outcome, why) for test, (outcome, why) in outcomes.items()]


def _said(java: Sequence[str], broker: dict[str, str], what: str) -> Iterator[tuple[str, str, str]]:
    """Give (outcome, method, why) for each test of a class that ends in time."""
    there = {"MAGNETAR_PULSAR": f"pulsar://{broker['pulsar']}", "MAGNETAR_HTTP": f"http://{broker['http']}"}
    command, environment = [*java, what], {**os.environ, **there}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CLASS_S, check=False, env=environment
        ).stdout
    except subprocess.TimeoutExpired as error:
        done = (error.stdout or b"").decode()
    for line in done.splitlines():
        outcome, _, told = line.partition("\t")
        if outcome in _WORST:
            method, _, why = told.partition("\t")
            yield outcome, method.split("[")[0], why


def _java() -> list[str]:
    """Return the command that runs a class of tests."""
    jars = [HERE / "jars.sh", "pulsar-java-tests"]
    libs = subprocess.run(
        ["bash", "-euc", '. "$0"; jars "$1"', *map(str, jars)], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
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
