"""A process compiles apart from itself, and may end meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

_LOADS = """
from numba.core.dispatcher import Dispatcher
from magnetar.records.loading import loaded
(module,) = loaded("magnetar.records.schema_ids_kernel")
made = [each.stats for each in vars(module).values() if isinstance(each, Dispatcher)]
print(sum(len(each.cache_hits) for each in made), sum(len(each.cache_misses) for each in made))
"""

_ENDS_MEANWHILE = """
import threading, time
from magnetar.records import loading
threading.Thread(target=loading.loaded, args=("magnetar.records.kafka_kernel",), daemon=True).start()
while not loading._compilers:
    time.sleep(0.01)
print(*(each.pid for each in loading._compilers))
"""


def _run(program: str, cache: Path) -> str:
    command = [sys.executable, "-c", program]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_what_another_process_compiled_is_loaded(tmp_path: Path) -> None:
    hits, misses = map(int, _run(_LOADS, tmp_path).split())
    assert hits > 0
    assert misses == 0


def test_a_process_that_ends_takes_its_compiler_along(tmp_path: Path) -> None:
    process = Path("/proc") / _run(_ENDS_MEANWHILE, tmp_path).strip()  # and it ends well
    until(lambda: not process.exists() or not (process / "cmdline").read_bytes())
    assert not list(tmp_path.rglob("*.nb?"))  # that one was not left to finish
