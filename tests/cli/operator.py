"""The command line as an operator has it: arguments and standard input in, output and exit status out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli import forked

MAGNETAR = Path(sys.executable).with_name("magnetar")


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
        self._environment = {
            **os.environ,
            "MAGNETAR_BOOTSTRAP_SERVER": bootstrap,
            "XDG_CONFIG_HOME": "/nonexistent",  # contexts of the user who runs the tests
        }

    def run(self, *arguments: str | Path, stdin: str = "", **variables: str) -> Ran:
        texts = [str(argument) for argument in arguments]
        return Ran(*forked.run(texts, stdin, self._environment | variables, 60))

    def ok(self, *arguments: str | Path, stdin: str = "") -> str:
        """Run what must succeed, and give what it said."""
        done = self.run(*arguments, stdin=stdin)
        assert done.status == 0, done.err
        return done.out

    def start(self, *arguments: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command that goes on."""
        return subprocess.Popen([MAGNETAR, *arguments], env=self._environment, stdout=stdout)

    def through_head(self, *arguments: str) -> tuple[int, str, str]:
        """Read one line of a command's output and go away; give its status, the line, and its complaints."""
        with subprocess.Popen(
            [MAGNETAR, *arguments],
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            line = running.stdout.readline()
            running.stdout.close()
            complaints = running.stderr.read()
        return running.returncode, line, complaints

    @staticmethod
    def until(holds: Callable[[], object], seconds: float = 20) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.1)
