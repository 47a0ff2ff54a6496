"""rskafka's own integration tests, pointed at a broker that already runs.

The source is a checkout of influxdata/rskafka, a client in Rust that has nothing of librdkafka's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from run import HOME

from suites.cargo_runs import CargoRun
from suites.kafka_served import KINDS as KINDS
from suites.kafka_served import served

# What the suite's docker-compose-kafka.yml gives its brokers.
SETTINGS = ("auto.create.topics.enable=false", "group.initial.rebalance.delay.ms=0")
PROGRAMS = ("client", "consumer", "produce_consume", "producer")
PROGRAM_SECONDS = 300
BUILD_SECONDS = 2400


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


def serve(kind: str, source: Path) -> AbstractContextManager[str]:
    """Start ``kind`` of broker as the suite starts its own; give its address."""
    return served(kind, *SETTINGS)


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (program::test, passed | failed | skipped, why) for each test."""
    environment = {
        "TEST_INTEGRATION": "1",
        "TEST_BROKER_IMPL": "kafka",
        "KAFKA_CONNECT": bootstrap,
        "RUSTUP_TOOLCHAIN": "stable",  # the one that is there, not the one that the source would have brought
    }
    suite = CargoRun(source, HOME / "rskafka-target", BUILD_SECONDS, PROGRAM_SECONDS, environment)
    for program in PROGRAMS:
        chosen = [test.partition("::")[2] for test in tests if test.startswith(f"{program}::")]
        if not chosen and tests:
            continue
        for test, outcome, why in suite.outcomes(["--features", "full", "--test", program], chosen):
            yield f"{program}::{test}", *_told(test, outcome, why)


def _told(test: str, outcome: str, why: str) -> tuple[str, str]:
    """Return what became of a test; those that ask for more than a broker pass without a word."""
    if "_java_" in test:
        return "skipped", "Java's client is asked for by TEST_JAVA_INTEROPT"
    if test == "test_sasl":
        return "skipped", "a second listener is asked for by KAFKA_SASL_CONNECT"
    return outcome, why
