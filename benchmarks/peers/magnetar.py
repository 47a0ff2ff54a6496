"""Magnetar: ``magnetar standalone`` from the environment that runs the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.server import Server, free_port


class Magnetar(Server):
    """As it comes: acknowledged records are on disk."""

    name = "magnetar, flush=always"
    settings: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Nothing: the first start makes all it needs."""

    def command(self) -> list[str]:
        executable = Path(sys.executable).with_name("magnetar")
        command = [str(executable), "standalone", "--data", str(self.data / "data"), "--kafka", self.address]
        for setting in self.settings:
            command += ["--set", setting]
        return command


class MagnetarOs(Magnetar):
    """Acknowledged records lie in the page cache, as in Kafka."""

    name = "magnetar, flush=os"
    settings = ("flush=os",)


class MagnetarForPulsar(Magnetar):
    """Serves Pulsar's clients too, on a port of their own."""

    def prepare(self) -> None:
        self._pulsar_port = free_port()

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self._pulsar_port}"

    def command(self) -> list[str]:
        return [*super().command(), "--pulsar", f"127.0.0.1:{self._pulsar_port}", "--http", "127.0.0.1:0"]


class MagnetarForPulsarOs(MagnetarForPulsar):
    """Acknowledged messages lie in the page cache, as in Pulsar's released standalone."""

    name = MagnetarOs.name
    settings = MagnetarOs.settings
