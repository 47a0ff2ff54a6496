"""Run a foreign suite that is written for pytest, and read its outcomes from what pytest says at the end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_OUTCOMES = re.compile(r"^(PASSED|FAILED|SKIPPED|ERROR) (?:\[\d+\] )?(\S+?)(?::\d+:| -|$)(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PytestRun:
    """How a suite's pytest is started: by which Python and where, and how long (s) a test, and all, may take."""

    python: Path
    directory: Path
    test_seconds: int
    suite_seconds: int
    folder: str = ""
    """Where the tests are, in ``directory``; their names are told without it."""
    options: Sequence[str] = ()
    environment: Mapping[str, str] | None = None

    def outcomes(self, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Give (test, passed | failed | skipped | error, why) for each of ``tests``, names in ``folder``."""
        limits = f"--timeout={self.test_seconds}", "--timeout-method=signal"
        shown = "-rA", "--no-fold-skipped", "--tb=line"
        chosen = [self.folder + test for test in tests]
        done = subprocess.run(
            [str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *limits, *shown, *self.options, *chosen],
            cwd=self.directory, env=self.environment, capture_output=True, text=True,
            timeout=self.suite_seconds, check=False,
        )  # fmt: skip
        for outcome, test, why in _OUTCOMES.findall(done.stdout):
            if test.startswith(self.folder):
                yield test.removeprefix(self.folder), outcome.lower(), why.strip()
