"""The compatibility page says what the runs said and what the broker's routes promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMPAT = Path(__file__).resolve().parents[2] / "compat"


def test_the_page_is_what_the_report_would_write() -> None:
    done = subprocess.run([sys.executable, str(COMPAT / "report.py"), "--check"], check=False, timeout=60)
    assert done.returncode == 0, "run compat/report.py"


def test_every_check_that_a_client_reported_has_a_meaning() -> None:
    checks = (COMPAT / "checks.py").read_text()
    results = json.loads((COMPAT / "results" / "clients.json").read_text())
    for clients in results.values():
        for name, entry in clients.items():
            unknown = [check for check in entry["checks"] if f'"{check}"' not in checks]
            assert unknown == [], name


def kept(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((COMPAT / "results" / f"{name}.json").read_text())
    return results


@pytest.mark.parametrize(
    ("suite", "peer"),
    [
        ("confluent-python", "kafka"),
        ("franz-go", "kafka"),
        ("kafka-python", "kafka"),
        ("pulsar-go", "pulsar"),
        ("pulsar-python", "pulsar"),
    ],
)
def test_what_passes_on_a_peer_passes_here_or_has_a_reason(suite: str, peer: str) -> None:
    findings = (COMPAT / "suites" / suite.replace("-", "_") / "FINDINGS.md").read_text()
    runs = kept("suites")[suite]
    ours, theirs = runs["magnetar"]["outcomes"], runs[peer]["outcomes"]
    broken = [test for test, outcome in theirs.items() if outcome == "passed" and ours.get(test) != "passed"]
    assert [test for test in broken if re.split("::|/", test)[-1] not in findings] == []


ELSEWHERE = [
    (suite, place)
    for suite, runs in kept("suites").items()
    for place in ("cluster", "proxy")
    if place in runs
]


@pytest.mark.parametrize(("suite", "place"), ELSEWHERE)
def test_what_passes_on_one_broker_passes_elsewhere_or_has_a_reason(suite: str, place: str) -> None:
    findings = (COMPAT / "suites" / suite.replace("-", "_") / "FINDINGS.md").read_text()
    runs = kept("suites")[suite]
    ours, there = runs["magnetar"]["outcomes"], runs[place]["outcomes"]
    broken = [
        test for test, outcome in ours.items() if outcome == "passed" and there.get(test, outcome) != outcome
    ]
    assert [test for test in broken if re.split("::|/", test)[-1] not in findings] == []


def test_cross_tests_differ_only_where_the_client_is_at_fault() -> None:
    results = kept("cross")
    fails_with_peers = [pair_of(each) for each in results["peers"] if not each["ok"]]
    assert {each["writer"] for each in results["magnetar"]} == set(results["versions"])
    for place in ("magnetar", "cluster", "proxy"):
        assert [x for x in results[place] if not x["ok"] and pair_of(x) not in fails_with_peers] == [], place


def pair_of(found: dict[str, Any]) -> tuple[str, str, str, str]:
    """What makes an outcome the same with ours and with a peer, which has no entry formats."""
    return found["test"], found["cell"].rpartition("/")[2], found["writer"], found["reader"]


def test_a_program_that_died_once_is_forgotten_when_it_runs_again(tmp_path: Path) -> None:
    file = tmp_path / "clients.json"
    code = f"""
import sys; sys.path.insert(0, {str(COMPAT)!r})
from pathlib import Path
from run import keep
died = {{"client": "kcat", "version": "", "check": "program", "ok": False, "detail": "not there"}}
keep(Path({str(file)!r}), "magnetar", [died])
keep(Path({str(file)!r}), "magnetar", [died | {{"version": "1", "check": "acks_all", "ok": True}}])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    entry = json.loads(file.read_text())["magnetar"]["kcat"]
    assert entry["version"] == "1"
    assert list(entry["checks"]) == ["acks_all"]


def test_every_api_that_the_table_names_a_test_for_has_one() -> None:
    sys.path.insert(0, str(COMPAT))
    from api_tests import ALL_VERSIONS, TESTS

    from magnetar.wire.kafka.messages import API_KEYS

    assert {name for name, *_ in API_KEYS.values()} >= TESTS.keys()
    for path in (*ALL_VERSIONS, *TESTS.values()):
        assert (COMPAT.parent / path).is_file(), path
