"""Foreign clients' own tests and our checks with them, as far as PyPI alone can bring them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

COMPAT = Path(__file__).parents[2] / "compat"
CLIENTS = ("confluent-python", "kafka-python", "aiokafka")
INSTALL_CLIENTS = f"import run; [run.install(each) for each in run.CLIENTS if each.name in {CLIENTS}]"
FETCH_KAFKA = "from benchmarks.peers.jars import kafka_libs; kafka_libs(); kafka_libs('kafka-tools')"


def run(*arguments: str | Path, within_s: float = 1400) -> None:
    """Run a program of compat's to its end; what it printed is told if it fails or has none."""
    process = subprocess.Popen(
        [sys.executable, "-u", *arguments],
        cwd=COMPAT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        pytest.fail(f"no end within {within_s:.0f} s:\n{printed[-6000:]}")
    assert process.returncode == 0, printed[-6000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_python_clients_pass_every_check(tmp_path: Path) -> None:
    """Side by side, each on a broker of its own: for half of the time they wait for groups and for leaders."""
    run("-c", INSTALL_CLIENTS)

    def passes(client: str) -> None:
        report = tmp_path / f"{client}.json"
        run("run.py", "--magnetar", "--client", client, "--json", report, within_s=700)

    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        for outcome in [pool.submit(passes, client) for client in CLIENTS]:
            outcome.result()


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
def test_kafkas_applications_lose_nothing(check: str, tmp_path: Path) -> None:
    run("run_apps.py", "--magnetar", "--check", check, "--json", tmp_path / "apps.json")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_kafka_pythons_own_suite_passes_what_its_allow_list_names() -> None:
    run("run_suites.py", "--magnetar", "--suite", "kafka-python")
