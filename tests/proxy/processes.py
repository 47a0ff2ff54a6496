"""A cluster of several brokers, and a proxy in front of it, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_S = 60.0
REPOSITORY = Path(__file__).resolve().parents[2]


class _Process:
    """It has started once the constructor returns; ``log`` is what it says on standard error."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        self._command = command
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )
        words = self._hear().split()
        assert words[:1] == ["ready"], self.log.read_text()[-5000:]
        self.served = {
            name: where.split(",") for name, _, where in (word.partition("=") for word in words[1:])
        }

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def kafka(self) -> str:
        """HOST:PORT of the first one that serves Kafka's clients."""
        return self.served["kafka"][0]

    @property
    def pulsar(self) -> str:
        return f"pulsar://{self.served['pulsar'][0]}"

    @property
    def http(self) -> str:
        return f"http://{self.served['http'][0]}"

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        self._process.send_signal(number)
        status = self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()


class ClusterProcess(_Process):
    """Brokers as `tests.proxy.brokers` has them."""

    def __init__(self, home: Path, count: int = 3, *more: str) -> None:
        super().__init__(
            home / "brokers.log", "-m", "tests.proxy.brokers", str(count), str(home / "data"), *more
        )

    def do(self, what: str) -> None:
        """Have it do something, and wait until that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._hear().split() == ["done"], self.log.read_text()[-5000:]


class ProxyProcess(_Process):
    """``magnetar proxy`` in front of a cluster, as a user starts it."""

    _program: tuple[str, ...] = ("-c", "from magnetar.cli.main import main; main()")
    """What Python runs."""

    def __init__(self, home: Path, cluster: ClusterProcess, *settings: str) -> None:
        self._given = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "proxy.bootstrap.servers": ",".join(cluster.served["kafka"]),
            **dict(each.split("=", 1) for each in settings),
        }
        super().__init__(home / "proxy.log", *self._words())

    def _words(self) -> list[str]:
        options = [word for name, value in self._given.items() for word in ("--set", f"{name}={value}")]
        return [*self._program, "proxy", *options]

    def again(self) -> None:
        """Kill it, and start it where it was."""
        self.kill()
        for name, served in (
            ("listeners", "kafka"),
            ("pulsar.listeners", "pulsar"),
            ("http.listeners", "http"),
        ):
            if served in self.served:
                scheme = self._given[name].partition("://")[0]
                self._given[name] = f"{scheme}://{self.served[served][0]}"
        self._command = tuple(self._words())
        self._start()
