"""Spark's own cluster manager: a master and two workers in processes of their own, with one core each."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType

import pyspark

_DEPLOY = "org.apache.spark.deploy"
_START_S = 240


class Standalone:
    """``url`` is what jobs connect to. The processes know nothing of Magnetar; executors get it by their Python."""

    def __init__(self, place: Path, workers: int = 2) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self._processes: list[subprocess.Popen[bytes]] = []
        port, web = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{port}"
        common = ["--host", "127.0.0.1"]
        self._start(
            "master", f"{_DEPLOY}.master.Master", [*common, "--port", str(port), "--webui-port", str(web)]
        )
        self._web = f"http://127.0.0.1:{web}/json/"
        self._wait(0)
        for number in range(workers):
            where = place / f"work-{number}"
            options = [
                *common,
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(where),
            ]
            self._start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", [*options, self.url])
        self._wait(workers)

    def _start(self, name: str, of_class: str, arguments: list[str]) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))
        }
        environment |= {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        with (self.place / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", of_class, *arguments],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self.place,
                )
            )

    def _wait(self, workers: int) -> None:
        """Wait until the master answers, and says that so many workers live."""
        ends = time.monotonic() + _START_S
        while time.monotonic() < ends and all(each.poll() is None for each in self._processes):
            try:
                with urllib.request.urlopen(self._web, timeout=30) as answer:
                    if answer.read().count(b'"state" : "ALIVE"') >= workers:
                        return
            except OSError:
                pass
            time.sleep(0.2)
        self.close()
        raise RuntimeError("no cluster: " + "".join(p.read_text()[-1000:] for p in self.place.glob("*.log")))

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()

    def __enter__(self) -> Standalone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
