"""Kafka's own Java tests of clients, tools and requests, with brokers of ours in the place of those that they start.

They come from Maven, compiled. What is in ``base`` takes the place of the class that starts brokers: see FINDINGS.md.
Each class has a process of its own, and each test brokers of its own, with the settings that it wants.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from broker import magnetar
from run import HERE, HOME

from suites.java_runs import by_class, jars, of_class

KINDS = ("magnetar", "kafka")
CLASS_S = 900
"""What a class of tests may take."""
AT_ONCE = 3
"""Classes: tests mostly wait."""
_BASE = Path(__file__).parent / "base"


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
    wanted = by_class(tests)
    java = _java(bootstrap)
    names = list(wanted) or (Path(__file__).parent / "classes.txt").read_text().split()
    environment = {**os.environ, "MAGNETAR": magnetar()}

    def run_class(name: str) -> list[tuple[str, str, str]]:
        package = "" if name.startswith("kafka.") else "org.apache.kafka."  # the broker's own are in Scala's
        return of_class(java, name, package, wanted[name], environment, CLASS_S)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for found in as_completed([pool.submit(run_class, each) for each in names]):
            yield from found.result()


def _java(kind: str) -> list[str]:
    """Return the command that runs a class of tests, on brokers of ``kind``."""
    libs = jars("kafka-java-tests")
    classes = HOME / f"kafka-java-tests-{kind}"
    classes.mkdir(parents=True, exist_ok=True)
    sources = [str(each) for each in (_BASE.rglob("*.java") if kind == "magnetar" else _BASE.glob("*.java"))]
    subprocess.run(
        ["javac", "-nowarn", "-Xlint:none", "-d", str(classes), "-cp", f"{libs}/*", *sources], check=True
    )
    return ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", f"{classes}{os.pathsep}{libs}/*", "RunTests"]
