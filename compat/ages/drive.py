"""A client's program at work: one command, one answer."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

ANSWER_S = 150
"""How long one command may take; a client that hangs ends then, and all that is asked of it after."""


class ClientFailed(Exception):
    """The client told of an error, or ended, or did not answer."""


class Program:
    """A program of ``program.py``'s commands, ended with the block; what it complains of goes to ``log``."""

    def __init__(
        self, command: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._answers.put(line)
        self._answers.put("")

    def ask(self, *words: object) -> None:
        """Send a command, whose answer is to be waited for."""
        assert self._process.stdin is not None
        try:
            print(*words, file=self._process.stdin, flush=True)
        except OSError as error:
            raise ClientFailed(self._ended()) from error

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the command that was sent last."""
        try:
            line = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            self.kill()
            raise ClientFailed(f"no answer after {ANSWER_S} s") from None
        if not line:
            raise ClientFailed(self._ended())
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise ClientFailed(str(found["error"])[:300])
        return found

    def do(self, *words: object) -> dict[str, Any]:
        self.ask(*words)
        return self.answer()

    def _ended(self) -> str:
        tail = " ".join(self._log.read_text(errors="replace").split())[-300:]
        return f"the program ended with {self._process.wait(10)}: {tail}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
