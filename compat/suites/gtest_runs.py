"""Run tests of a program that GoogleTest made, and read their outcomes from what it says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from suites.programs import outcomes_of

_ENDS = {"       OK ": "passed", "  FAILED  ": "failed", "  SKIPPED ": "skipped"}
_LINE = re.compile(r"^\[( RUN      |       OK |  FAILED  |  SKIPPED )\] (\S+?),? ?(?:\(\d+ ms\)|where .*)?$")
_WHY = re.compile(r"^\S+\.(?:cc|h):\d+: Failure$|^unknown file: Failure$")
_FEW_LINES = 6


@dataclass(frozen=True, slots=True)
class GoogleTests:
    """A program of tests, which run in ``directory``; each may take ``test_seconds``."""

    program: Path
    directory: Path
    test_seconds: int

    def listed(self) -> list[str]:
        """Return the names of all its tests: ``Suite.test``."""
        done = subprocess.run(
            [self.program, "--gtest_list_tests"], capture_output=True, text=True, check=True, timeout=60
        )
        found, suite = [], ""
        for line in done.stdout.splitlines():
            name = line.split("#")[0].rstrip()
            if name.startswith("  "):
                found.append(suite + name.strip())
            elif name.endswith("."):
                suite = name
        return found

    def outcomes(self, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Give (test, passed | failed | skipped, why) for each.

        A test that ends the whole program, or does not end in its time, has failed; the others get another program.
        """
        return outcomes_of(tests, self._program)

    def _program(self, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        under_way, said, left, late = "", "", 0, False
        with subprocess.Popen(
            [self.program, f"--gtest_filter={':'.join(tests)}"], cwd=self.directory, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as program:  # fmt: skip

            def end() -> None:
                nonlocal late
                late = True
                program.kill()

            timer = Timer(self.test_seconds, end)
            timer.start()
            try:
                for line in program.stdout or ():
                    found = _LINE.match(line.rstrip())
                    if found is None:
                        if _WHY.match(line.rstrip()):
                            said, left = "", _FEW_LINES
                        elif left:
                            said, left = f"{said} {line.strip()}", left - 1
                    elif found[1] == " RUN      ":
                        under_way, said = found[2], ""
                        timer.cancel()
                        timer = Timer(self.test_seconds, end)
                        timer.start()
                    elif found[2] == under_way:
                        yield under_way, _ENDS[found[1]], said.strip() if found[1] == "  FAILED  " else ""
                        under_way = ""
            finally:
                timer.cancel()
                program.kill()
        if under_way:
            why = f"it did not end in {self.test_seconds} s" if late else "it ended the whole program"
            yield under_way, "failed", said.strip() or why
