"""Run a foreign suite that is written for cargo, and read its outcomes from what its programs say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_ENDS = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}


@dataclass(frozen=True, slots=True)
class CargoRun:
    """How a suite's tests are built and run: where, into which folder, and how long (s) either may take."""

    directory: Path
    target: Path
    build_seconds: int
    suite_seconds: int
    environment: Mapping[str, str] = field(default_factory=dict)

    def outcomes(
        self, arguments: Sequence[str], tests: Sequence[str], options: Sequence[str] = ()
    ) -> Iterator[tuple[str, str, str]]:
        """Give (test, passed | failed | skipped, why); ``arguments`` are cargo's, ``options`` the program's.

        Raises ``TimeoutExpired`` if the tests do not end, ``RuntimeError`` with what cargo says if they are not built.
        """
        command = ["cargo", "test", *arguments]
        environment = {**os.environ, **self.environment, "CARGO_TARGET_DIR": str(self.target)}
        built = subprocess.run(
            [*command, "--no-run"], cwd=self.directory, env=environment, capture_output=True,
            text=True, timeout=self.build_seconds, check=False,
        )  # fmt: skip
        if built.returncode:
            raise RuntimeError(f"{' '.join(command)} built nothing:\n{built.stderr[-3000:]}")
        done = subprocess.run(
            [*command, "--", *options, "--exact", *tests], cwd=self.directory, env=environment,
            capture_output=True, text=True, timeout=self.suite_seconds, check=False,
        )  # fmt: skip
        for test, end in re.findall(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", done.stdout, re.MULTILINE):
            why = re.search(rf"^thread '{test}'.*\n(.*)", done.stdout, re.MULTILINE)
            yield test, _ENDS[end], why[1] if why and end == "FAILED" else ""
