"""`make cluster-demo`, with fewer flights: whatever it kills, what comes out is what went in, and it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.servers import class_path, java

ROOT = Path(__file__).parent.parent.parent

java(), class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_flights_pass_a_cluster_that_loses_a_broker_and_a_bookie(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    command = [sys.executable, str(ROOT / "examples" / "cluster" / "demo.py")]
    options = ["--data", str(data), "--flights", "20000", "--rate", "2000"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    said = " ".join(done.stdout.split())
    assert "kill -9 of broker" in said
    assert "kill -9 of a bookie" in said
    assert "topic and table are equal." in said
    assert "What came out is what went in, each record once." in said
    assert (data / "cluster.png").read_bytes().startswith(b"\x89PNG")


def test_a_directory_that_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    command = [sys.executable, str(ROOT / "examples" / "cluster" / "demo.py"), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "was not made by this demo" in done.stderr
    assert (tmp_path / "letters").read_text() == "dear"
