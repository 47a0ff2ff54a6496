"""The commands on the page about entry formats do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "entry-formats.md"


@pytest.mark.slow
def test_the_commands_on_the_page(broker: BrokerProcess) -> None:
    block = re.search(r"```\n(magnetar topic create.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    environment = os.environ | {
        "MAGNETAR_BOOTSTRAP_SERVER": broker.address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-ec", block[1]], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"entry format\s+pulsar", done.stdout)
    assert re.search(r"message id\s+\d+:0:0:0", done.stdout)
    assert "hello" in done.stdout
