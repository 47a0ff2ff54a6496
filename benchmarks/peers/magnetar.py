"""Magnetar: ``magnetar standalone`` from the environment that runs the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.server import Server


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
