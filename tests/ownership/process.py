"""`moving` as those who test see it: a process with two addresses, which moves what it is told to."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.ownership.load import PATIENCE_S

SEED = os.environ.get("MAGNETAR_SEED", str(random.randrange(1 << 30)))


class MovingBroker:
    """See `moving`; its log lies beside its data."""

    def __init__(self, home: Path) -> None:
        self.log = home / "broker.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.ownership.moving", str(home / "data"), SEED],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        words = self._hear().split()
        assert words[:1] == ["ready"], self.log.read_text()
        self.kafka, self.pulsar = (word.partition("=")[2] for word in words[1:])

    def move(self, times: int) -> None:
        self._tell(f"move {times}", f"moved {times}")

    def coordinator_away(self, group: str) -> None:
        """Take the bundle away that has a group's coordinator; clients are told that nobody has it."""
        self._tell(f"away {group}", f"away {group}")

    def coordinator_back(self, group: str) -> None:
        """Give back what `coordinator_away` took."""
        self._tell(f"back {group}", f"back {group}")

    def _tell(self, what: str, answer: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._hear().split() == answer.split(), self.log.read_text()[-5000:]

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
