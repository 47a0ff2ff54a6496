"""Runs tests on copies of the tree, each with one mutant at a time.

A copy is imported in the place of the tree by ``PYTHONPATH``, which every process that tests start inherits: brokers,
commands, Spark's workers. Nobody's checkout is touched, and nothing needs to be put back after a kill.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.lists import ROOT, Case
from tools.mutants.traces import Trace, Traces

_COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "compat",
    "tools",
    "pyproject.toml",
    "README.md",
    "Makefile",
    "bin",
)
_PATIENCE = 4.0  # times what the tests take without a mutant: the machine may be busier now
_MIN_S = 60.0
_FIRST_S = 3.0  # of tests that run before all others: most mutants go no further, and few files are imported
_QUICK = "not slow and not spark"
_ENDED_WELL, _FAILED, _NONE_FOUND = 0, 1, 5


class NotGreen(Exception):
    """Tests fail, or find nothing to do, without any mutant."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: killed, survived, or timed out (it was noticed by hanging)."""

    result: str
    by: str
    """The test that failed first."""
    seconds: float


class Copy:
    """One copy of the tree, in which one run at a time goes on."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self.home = Path(tempfile.mkdtemp(prefix="mutants-", dir=shared if shared.is_dir() else None))
        for name in _COPIED:
            path = ROOT / name
            if path.is_dir():
                shutil.copytree(path, self.home / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.exists():
                shutil.copy2(path, self.home / name)
        self.scratch = self.home / "tmp"  # in memory, too, where the copy is: no test waits for a disk
        self.scratch.mkdir()
        self._changed = 0

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    def record(self, traces: Traces) -> None:
        """Have the tests of all areas noted by where they come; one that fails (marks take time) is left out."""
        traces.mark(self.home)

        def run(notes: Path, files: Sequence[str]) -> None:
            status, said = self._run(files, None, {"MUTANTS_NOTES": str(notes)})
            # In some folders all tests are slow: none of them looks, and none comes anywhere.
            if status not in (_ENDED_WELL, _FAILED, _NONE_FOUND):
                raise NotGreen(f"with marks and without a mutant: status {status}\n{said[-3000:]}")

        try:
            traces.record(run)
        finally:
            traces.unmark(self.home)

    def time_of(self, tests: Sequence[str]) -> float:
        """Return how long these tests take (s) without a mutant; raise `NotGreen` if they do not pass."""
        began = time.monotonic()
        status, said = self._run(tests, None)
        if status != _ENDED_WELL:
            raise NotGreen(f"{' '.join(tests)} without a mutant: status {status}\n{said[-3000:]}")
        return time.monotonic() - began

    def judge(self, case: Case, usual_s: float) -> Outcome:
        """Return what the tests named for a mutant say of it; ``usual_s`` is what they take without it."""
        return self._judge(case, lambda: self._run(case.tests, max(_MIN_S, usual_s * _PATIENCE)))

    def judge_by(self, case: Case, chosen: Sequence[Trace]) -> Outcome:
        """Return what these tests say of a mutant, the first few of them in a run of their own."""
        first: list[Trace] = []
        while len(first) < len(chosen) and sum(each.seconds for each in first) < _FIRST_S:
            first.append(chosen[len(first)])
        return self._judge(case, lambda: self._run_chosen(first, chosen[len(first) :]))

    def _run_chosen(self, *parts: Sequence[Trace]) -> tuple[int | None, str]:
        status: int | None = _ENDED_WELL
        said = ""
        for part in filter(None, parts):
            names = self.home / "chosen"
            names.write_text("\n".join(each.test for each in part))
            max_s = _MIN_S + _PATIENCE * sum(each.seconds for each in part)
            files = dict.fromkeys(each.file for each in part)
            status, said = self._run(list(files), max_s, {"MUTANTS_CHOSEN": str(names)})
            if status != _ENDED_WELL:
                break
        return status, said

    def _judge(self, case: Case, run: Callable[[], tuple[int | None, str]]) -> Outcome:
        path = self.home / case.mutant.path
        source = path.read_bytes()
        began = time.monotonic()
        self._write(path, case.mutant.applied(source))
        try:
            status, said = run()
        finally:
            self._write(path, source)
        seconds = time.monotonic() - began
        if status is None:
            return Outcome("timed out", "", seconds)
        if status == _ENDED_WELL:
            return Outcome("survived", "", seconds)
        if status == _NONE_FOUND:
            raise NotGreen(f"{' '.join(case.tests)}: there are no such tests")
        failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Outcome("killed", failed[0].split(" - ")[0] if failed else f"status {status}", seconds)

    def _write(self, path: Path, content: bytes) -> None:
        """Python knows stale bytecode by size and second: each version gets a second of its own."""
        self._changed += 1
        path.write_bytes(content)
        stamp = 1_000_000_000 + self._changed
        os.utime(path, (stamp, stamp))

    def _run(
        self, tests: Sequence[str], max_s: float | None, told: Mapping[str, str] | None = None
    ) -> tuple[int | None, str]:
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=line"]
        command += [] if told and "MUTANTS_NOTES" in told else ["-x"]
        command += ["-p", "tools.mutants.in_pytest"]
        command += ["-p", "no:cacheprovider", *([] if "-m" in tests else ["-m", _QUICK]), *tests]
        environment = os.environ | {
            "PYTHONPATH": f"{self.home / 'src'}{os.pathsep}{self.home}",
            "MAGNETAR_PROFILE": "mutants",
            "MAGNETAR_SEEDS": os.environ.get("MAGNETAR_SEEDS", "100"),
            "MAGNETAR_FLIPS": os.environ.get("MAGNETAR_FLIPS", "100"),
            "CI": "1",
            "TMPDIR": str(self.scratch),
            **(told or {}),
        }
        process = subprocess.Popen(
            command, cwd=self.home, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=max_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        finally:
            _end_what_is_left(process.pid)
            for each in self.scratch.iterdir():
                shutil.rmtree(each, ignore_errors=True)
        return process.returncode, said


def _end_what_is_left(group: int) -> None:
    """A test that was killed may have left brokers: they are of its group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
