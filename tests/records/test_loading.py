"""A process compiles apart from itself, and may end meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from magnetar.ledger.compaction import process as compaction_process
from magnetar.ledger.compaction.job import Job
from magnetar.ledger.port import CompactionRules
from magnetar.records import conversion, schema_ids
from tests.waiting import until

_LOADS = """
from numba.core.dispatcher import Dispatcher
from magnetar.records.loading import loaded
(module,) = loaded("magnetar.records.kernels.schema_ids")
made = [each.stats for each in vars(module).values() if isinstance(each, Dispatcher)]
print(sum(len(each.cache_hits) for each in made), sum(len(each.cache_misses) for each in made))
"""

_ENDS_MEANWHILE = """
import threading, time
from magnetar.records import loading
threading.Thread(target=loading.loaded, args=("magnetar.records.kernels.kafka",), daemon=True).start()
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


@pytest.mark.slow
def test_what_is_known_to_be_kept_is_not_asked_of_another_process(tmp_path: Path) -> None:
    program = """
import subprocess
from magnetar.records import loading
begun = []
class Counted(subprocess.Popen):
    def __init__(self, command, **others):
        begun.append(command)
        super().__init__(command, **others)
subprocess.Popen = Counted
(module,) = loading.loaded("magnetar.records.kernels.schema_ids")
print(len(begun), module.fill.stats.cache_misses.total() if hasattr(module.fill, "stats") else 0)
"""
    assert _run(program, tmp_path).split() == ["1", "0"]
    assert _run(program, tmp_path).split() == ["0", "0"]
    (note,) = tmp_path.rglob("kept-*")
    note.rename(
        note.with_name("kept-by-other-circumstances")
    )  # another numba, another processor, files copied anew
    assert _run(program, tmp_path).split() == ["1", "0"]


@pytest.mark.parametrize("module", [conversion, schema_ids])
def test_machine_code_is_loaded_once_so_much_was_done_without_it(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[threading.Thread] = []
    monkeypatch.setattr(module._Machine, "load", lambda self: loads.append(threading.current_thread()))
    machine = module._Machine()
    assert machine.get(module.WORTH_IT - 1) is None
    assert machine._loading is None
    for _ in range(3):
        assert machine.get(1) is None
    machine._loading.join()
    assert loads == [machine._loading]


def test_a_small_compaction_goes_without_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = object()
    monkeypatch.setattr(compaction_process, "machine_code", lambda: machine)
    monkeypatch.setattr(compaction_process, "Passes", lambda job, machine: (job.messages, machine))
    most = compaction_process.WORTH_IT
    for messages, given in ((most - 1, None), (most, machine)):
        job = Job(CompactionRules(), messages, 0, 0)
        assert compaction_process._begun(job) == (messages, given)
