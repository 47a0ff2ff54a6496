"""Foreign clients' own tests and our checks with them, as far as PyPI alone can bring them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[2] / "compat"
FETCH_KAFKA = "from benchmarks.peers.jars import kafka_libs; kafka_libs(); kafka_libs('kafka-tools')"


def run(*arguments: str | Path) -> None:
    finished = subprocess.run(
        [sys.executable, *arguments], cwd=COMPAT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert finished.returncode == 0, finished.stdout[-6000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_python_clients_pass_every_check(tmp_path: Path) -> None:
    clients = ("--client", "confluent-python", "--client", "kafka-python", "--client", "aiokafka")
    run("run.py", "--magnetar", *clients, "--json", tmp_path / "clients.json")


@pytest.fixture(scope="module")
def kafkas_jars() -> None:
    """Kafka's applications, and Kafka, from Maven; where they cannot be had, the reason is in the test's report."""
    missing = [tool for tool in ("mvn", "java") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"Kafka's applications cannot be resolved: there is no {', '.join(missing)}")
    for command in ([COMPAT / "kafka-apps.sh", "--install"], [sys.executable, "-c", FETCH_KAFKA]):
        got = subprocess.run(command, cwd=COMPAT.parent, capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"Kafka's applications cannot be resolved:\n{got.stderr[-2000:]}")


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("kafkas_jars")
@pytest.mark.parametrize("check", ["word_count", "files", "move"])
def test_kafkas_applications_lose_nothing(check: str) -> None:
    run("run_apps.py", "--magnetar", "--check", check)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_kafka_pythons_own_suite_passes_what_its_allow_list_names() -> None:
    run("run_suites.py", "--magnetar", "--suite", "kafka-python")
