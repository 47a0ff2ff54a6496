"""The matrix of ages: its list of versions, its results, and that its checks see what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "compat"))

from ages import catalogue
from ages.drive import Program
from ages.steps import CLOSED, NAMES, OPEN, Asked, outcomes
from run_ages import AGO_MS, broker

COMPAT = Path(catalogue.__file__).resolve().parents[1]
AGES = {age.label: age for age in catalogue.ages()}
RESULTS: dict[str, Any] = json.loads((COMPAT / "results" / "ages.json").read_text())


@pytest.mark.parametrize("age", AGES.values(), ids=AGES.keys())
def test_a_version_names_what_there_is(age: catalogue.Age) -> None:
    assert set(age.lacks) <= {*NAMES, *catalogue.TRAITS}
    assert set(age.fails) <= set(age.steps)
    assert all([*age.lacks.values(), *age.fails.values()])
    assert age.kind in catalogue.KINDS


def test_every_version_stands_once_and_by_age() -> None:
    assert len(AGES) == len(catalogue.ages())
    for client in catalogue.names():
        years = [age.year for age in AGES.values() if age.client == client]
        assert years == sorted(years), client


@pytest.mark.parametrize("age", AGES.values(), ids=AGES.keys())
def test_every_step_ran_here_and_on_kafka(age: catalogue.Age) -> None:
    for column in ("magnetar", "kafka"):
        assert set(RESULTS[column][age.client][age.version]["steps"]) == set(age.steps), column


@pytest.mark.parametrize("column", sorted(RESULTS))
def test_what_fails_is_known_to_fail_on_kafka_too(column: str) -> None:
    for client, versions in RESULTS[column].items():
        for version, run in versions.items():
            age = AGES[f"{client} {version}"]
            failed = {step for step, outcome in run["steps"].items() if not outcome["ok"]}
            assert failed <= set(age.fails), (column, age.label)
            if column == "kafka":
                assert failed == set(age.fails), age.label


KAFKA_PYTHON = COMPAT / "ages" / "kafka_python_ages.py"
LIAR = f"""
import subprocess, sys
client = subprocess.Popen([sys.executable, {str(KAFKA_PYTHON)!r}, *sys.argv[1:]], stdin=subprocess.PIPE, text=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "produce":
        less = words[1].endswith("-none")
        words = [*words[:2], "none", words[3], str(int(words[4]) - less), "plain"]
    print(*(word.replace("abort", "commit") for word in words), file=client.stdin, flush=True)
"""
"""Compresses nothing, leaves out a record, is not idempotent, aborts nothing, and says that all was well."""


@contextmanager
def program(path: Path, address: str, log: Path) -> Iterator[Asked]:
    t0 = int(time.time() * 1000) - AGO_MS
    with Program((sys.executable, str(path)), (address, str(t0)), {}, log) as running:
        yield Asked(running, address, f"test-{log.stem}", t0)


@pytest.mark.slow
def test_a_client_passes_and_each_lie_about_it_fails(tmp_path: Path) -> None:
    """The client is the one that tests have; a program that says that all was well is not believed."""
    liar = tmp_path / "liar.py"
    liar.write_text(LIAR)
    without = ("codec_snappy", "codec_lz4")  # their libraries are not among what tests need
    steps = [step for step in OPEN if step.__name__ not in without]
    with broker("magnetar", "standalone", creates=True) as address:
        with program(KAFKA_PYTHON, address, tmp_path / "client.log") as asked:
            found = dict(outcomes(asked, steps))
        assert {name: each["detail"] for name, each in found.items() if not each["ok"]} == {}
        with program(liar, address, tmp_path / "liar.log") as asked:
            lied = dict(outcomes(asked, steps))
    wrong = {name: each["detail"].split(": ")[1] for name, each in lied.items() if not each["ok"]}
    assert wrong == {
        "codec_none": "records of the batches that are stored",
        "codec_gzip": "codecs of the batches that are stored",
        "codec_zstd": "codecs of the batches that are stored",
        "idempotent": "a producer id, which is -1",
        "transactions": "numbers read",
    }


@pytest.mark.slow
def test_a_client_is_there_before_its_topic_where_brokers_make_none(tmp_path: Path) -> None:
    with (
        broker("magnetar", "standalone", creates=False) as address,
        program(KAFKA_PYTHON, address, tmp_path / "client.log") as asked,
    ):
        assert dict(outcomes(asked, CLOSED))["early_closed"]["detail"] == ""


def test_the_command_says_what_it_does() -> None:
    done = subprocess.run(
        [sys.executable, str(COMPAT / "run_ages.py"), "--help"], capture_output=True, text=True, check=True
    )
    assert "--place" in done.stdout
