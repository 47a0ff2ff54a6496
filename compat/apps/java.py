"""Applications in Java: started on a log of their own, asked to end or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Self

SCRIPT = Path(__file__).resolve().parent.parent / "kafka-apps.sh"
ENDS_SECONDS = 30


class Application:
    """One application of a script, ended with the block; what it prints is in ``log``."""

    def __init__(self, log: Path, *arguments: object, script: Path = SCRIPT) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [script, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def check(self) -> None:
        """Raise if it has ended by itself."""
        status = self._process.poll()
        if status is not None:
            raise AssertionError(f"{self.log.name}: ended with status {status}: {self.text[-2000:]}")

    def kill(self) -> None:
        """End it, and what it has started, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to end, and kill it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()


def install() -> None:
    """Fetch the jars, so that no application waits for them."""
    for script in (SCRIPT, SCRIPT.with_name("flink.sh")):
        subprocess.run([script, "--install"], check=True)


def plugins() -> str:
    """Where Connect finds connectors."""
    return subprocess.run([SCRIPT, "--plugins"], check=True, capture_output=True, text=True).stdout.strip()
