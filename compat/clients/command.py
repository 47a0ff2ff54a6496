"""Run other people's command-line programs, with a bound on their time."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence


class Failed(Exception):
    """A command ended with an error; the end of what it printed says why."""


def output(command: Sequence[str], text: str | None = None, seconds: float = 120) -> str:
    """What the command prints on stdout; ``text`` is its input. A leading status other than 0 raises."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise Failed(f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-400:]}")
    return done.stdout


class Running:
    """A command that stays, and the lines it has printed so far."""

    def __init__(self, command: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def stop(self, seconds: float = 15) -> None:
        """Ask it to end, and make it end if it does not."""
        self.process.terminate()
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        self.process.kill()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
