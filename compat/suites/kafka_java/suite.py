"""Kafka's own Java tests of clients, tools and requests, with brokers of ours in the place of those that they start.

They come from Maven, compiled. What is in ``base`` takes the place of the class that starts brokers: see FINDINGS.md.
Each class has a process of its own, and each test brokers of its own, with the settings that it wants.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from broker import magnetar
from run import HERE, HOME

KINDS = ("magnetar", "kafka")
CLASS_S = 900
"""What a class of tests may take."""
AT_ONCE = 3
"""Classes: tests mostly wait."""
NEVER_ENDED = "it never ended"
_BASE = Path(__file__).parent / "base"
_WORST = ("failed", "passed", "skipped")


def default_source() -> Path | None:
    """The tests come from Maven: there is no source."""
    return HERE


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Give ``kind``: tests start their brokers themselves."""
    yield kind


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test.

    A test that runs several times, or was tried twice, is told of once: failed if it ever did.
    """
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for test in tests:
        name, _, method = test.rpartition(".")
        wanted[name].add(method)
    java = _java(bootstrap)
    names = list(wanted) or (Path(__file__).parent / "classes.txt").read_text().split()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for found in as_completed([pool.submit(_of_class, java, each, wanted[each]) for each in names]):
            yield from found.result()


def _of_class(java: Sequence[str], name: str, wanted: Collection[str]) -> list[tuple[str, str, str]]:
    outcomes = {f"{name}.{each}": ("failed", NEVER_ENDED) for each in wanted}
    package = "" if name.startswith("kafka.") else "org.apache.kafka."  # the broker's own are in Scala's
    what = package + name + ("#" + ",".join(sorted(wanted)) if wanted else "")
    for outcome, method, why in _said(java, what):
        test = f"{name}.{method}"
        before = outcomes.get(test)
        if before is None or before[1] == NEVER_ENDED or _WORST.index(outcome) < _WORST.index(before[0]):
            outcomes[test] = outcome, why
    return [(test, outcome, why) for test, (outcome, why) in outcomes.items()]


def _said(java: Sequence[str], what: str) -> Iterator[tuple[str, str, str]]:
    """Give (outcome, method, why) for each test of a class that ends in time."""
    environment = {**os.environ, "MAGNETAR": magnetar()}
    try:
        done = subprocess.run(
            [*java, what], capture_output=True, text=True, timeout=CLASS_S, check=False, env=environment
        ).stdout
    except subprocess.TimeoutExpired as error:
        done = (error.stdout or b"").decode()
    for line in done.splitlines():
        outcome, _, told = line.partition("\t")
        if outcome in _WORST:
            method, _, why = told.partition("\t")
            yield outcome, method, why


def _java(kind: str) -> list[str]:
    """Return the command that runs a class of tests, on brokers of ``kind``."""
    libs = subprocess.run(
        ["bash", "-euc", '. "$0"; jars "$1"', str(HERE / "jars.sh"), "kafka-java-tests"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    classes = HOME / f"kafka-java-tests-{kind}"
    classes.mkdir(parents=True, exist_ok=True)
    sources = [str(each) for each in (_BASE.rglob("*.java") if kind == "magnetar" else _BASE.glob("*.java"))]
    subprocess.run(
        ["javac", "-nowarn", "-Xlint:none", "-d", str(classes), "-cp", f"{libs}/*", *sources], check=True
    )
    return ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", f"{classes}{os.pathsep}{libs}/*", "RunTests"]
