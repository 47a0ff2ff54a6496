"""The command line as an operator has it: arguments and standard input in, output and exit status out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """What it said in JSON."""
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """What it said in JSON lines."""
        assert self.status == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


class Operator:
    """Somebody at a shell, with a broker in mind."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "MAGNETAR_BOOTSTRAP_SERVER": bootstrap}

    def run(self, *arguments: str | Path, stdin: str = "", **variables: str) -> Ran:
        magnetar = Path(sys.executable).with_name("magnetar")
        done = subprocess.run(
            [magnetar, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=self._environment | variables,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run what must succeed, and give what it said."""
        done = self.run(*arguments, stdin=stdin)
        assert done.status == 0, done.err
        return done.out
