"""Run tests of a Go package, and read their outcomes from what ``go test -json`` says."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
        waiting = dict.fromkeys(tests)
        while waiting:
            before = len(waiting)
            for test, outcome, why in self._program(list(waiting)):
                if test in waiting:
                    del waiting[test]
                    yield test, outcome, why
            if len(waiting) == before:
                return

    def _program(self, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        chosen = f"^({'|'.join(map(re.escape, tests))})$"
        done = self._go("-json", f"-timeout={self.seconds}s", "-run", chosen)
        if '"Test"' not in done.stdout:
            raise RuntimeError(f"the tests could not be built: {(done.stdout + done.stderr)[-2000:]}")
        said: dict[str, str] = {}
        under_way: dict[str, None] = {}
        for line in done.stdout.splitlines():
            event = json.loads(line)
            test, action = event.get("Test", ""), event["Action"]
            if action == "output" and (found := re.search(self.says, event["Output"])):
                said[test.split("/")[0]] = found[1]
            if not test or "/" in test:
                continue
            if action == "run":
                under_way[test] = None
            if action in _ENDS:
                under_way.pop(test, None)
                yield test, _ENDS[action], said.get(test, "") if action == "fail" else ""
        for test in under_way:  # a panic that Go cannot ascribe to it
            yield test, "failed", said.get(test, "it ended the whole program")

    def _go(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["go", "test", "-vet=off", *self.options, *arguments, self.path]
        return subprocess.run(
            command,
            cwd=self.directory,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=self.seconds + 600,
            check=False,
        )
