"""Run tests of a Go package, and read their outcomes from what ``go test -json`` says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

from suites.programs import outcomes_of

_ENDS = {"pass": "passed", "fail": "failed", "skip": "skipped"}


@dataclass(frozen=True)
class GoPackage:
    """A package of the module in ``directory``; all its tests together may take ``seconds``."""

    directory: Path
    path: str
    seconds: int
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    says: str = r"_test\.go:\d+: (.*)"
    """What of a failed test's output tells why."""

    def listed(self) -> list[str]:
        """Return the names of all its tests."""
        done = self._go("-list", "^Test")
        tests = re.findall(r"^Test\w*$", done.stdout, re.MULTILINE)
        if not tests:
            raise RuntimeError(f"the tests could not be built: {done.stderr[-2000:]}")
        return tests

    def outcomes(self, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Give (test, passed | failed | skipped, why) for each; parts of a test are not told of by themselves.

        A test that ends the whole program has failed, and the others get another program.
        """
        return outcomes_of(tests, self._program)

    def _program(self, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        chosen = f"^({'|'.join(map(re.escape, tests))})$"
        said: dict[str, str] = {}
        under_way: dict[str, None] = {}
        asked, other = False, []
        for line in self._lines("-json", f"-timeout={self.seconds}s", "-run", chosen):
            event = json.loads(line) if line.startswith("{") else {}
            test, action = event.get("Test", ""), event.get("Action", "")
            if not test:
                other.append(event.get("Output", line))
                continue
            asked = True
            if action == "output" and (found := re.search(self.says, event["Output"])):
                said[test.split("/")[0]] = found[1]
            if "/" in test:
                continue
            if action == "run":
                under_way[test] = None
            if action in _ENDS:
                under_way.pop(test, None)
                yield test, _ENDS[action], said.get(test, "") if action == "fail" else ""
        if not asked:
            raise RuntimeError(f"the tests could not be built: {''.join(other)[-2000:]}")
        for test in under_way:  # a panic that Go cannot ascribe to it
            yield test, "failed", said.get(test, "it ended the whole program")

    def _lines(self, *arguments: str) -> Iterator[str]:
        """What the command says, as it says it: a run that is cut short has told of all that ended before."""
        with subprocess.Popen(
            self._command(*arguments),
            cwd=self.directory,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as program:
            late = Timer(self.seconds + 600, _end, [program])
            late.start()
            try:
                yield from program.stdout or ()
            finally:
                late.cancel()
                _end(program)

    def _go(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments),
            cwd=self.directory,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=self.seconds + 600,
            check=False,
        )

    def _command(self, *arguments: str) -> list[str]:
        return ["go", "test", "-vet=off", *self.options, *arguments, self.path]


def _end(program: subprocess.Popen[str]) -> None:
    """End ``program`` and the tests' own, which is its child."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
