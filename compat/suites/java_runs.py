"""Classes of Java tests that Maven brings, each run by a process of its own that says what became of each test."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from run import HERE

NEVER_ENDED = "it never ended"
_WORST = ("failed", "passed", "skipped")


def by_class(tests: Sequence[str]) -> defaultdict[str, set[str]]:
    """Return the methods that are wanted of each class; an empty set for all of a class that is not there."""
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    for test in tests:
        name, _, method = test.rpartition(".")
        wanted[name].add(method)
    return wanted


def of_class(
    java: Sequence[str],
    name: str,
    package: str,
    wanted: Collection[str],
    environment: Mapping[str, str],
    most_s: float,
) -> list[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test of a class that ends in time: failed if it ever did."""
    outcomes = {f"{name}.{each}": ("failed", NEVER_ENDED) for each in wanted}
    what = package + name + ("#" + ",".join(sorted(wanted)) if wanted else "")
    for outcome, method, why in _said([*java, what], environment, most_s):
        test = f"{name}.{method}"
        before = outcomes.get(test)
        if before is None or before[1] == NEVER_ENDED or _WORST.index(outcome) < _WORST.index(before[0]):
            outcomes[test] = outcome, why
    return [(test, outcome, why) for test, (outcome, why) in outcomes.items()]


def _said(
    command: Sequence[str], environment: Mapping[str, str], most_s: float
) -> Iterator[tuple[str, str, str]]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=most_s, check=False, env=environment
        ).stdout
    except subprocess.TimeoutExpired as error:
        done = (error.stdout or b"").decode()
    for line in done.splitlines():
        outcome, _, told = line.partition("\t")
        if outcome in _WORST:
            method, _, why = told.partition("\t")
            yield outcome, method.split("[")[0], why  # without the values that it ran with


def jars(name: str) -> str:
    """Bring the jars of ``compat/NAME/pom.xml``; return their folder."""
    command = ["bash", "-euc", '. "$0"; jars "$1"', str(HERE / "jars.sh"), name]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
