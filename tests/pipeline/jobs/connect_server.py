"""A Spark Connect server in a process of its own, as a cluster's administrator would run one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import pyspark

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_SECONDS = 90


class ConnectServer:
    """Serves ``sc://127.0.0.1:PORT`` until it is closed. It knows nothing of any project."""

    def __init__(self, place: Path, master: str = "local[2]", **conf: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        place.mkdir(parents=True, exist_ok=True)
        self.log = place / "connect.log"
        self.warehouse = place / "warehouse"
        home = Path(pyspark.__file__).parent
        settings = {
            "spark.connect.grpc.binding.port": str(port),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(self.warehouse),
        } | conf
        given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(place),
            "PYSPARK_PYTHON": sys.executable,
        }
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_CONNECT_AUTHENTICATE_TOKEN"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [home / "bin" / "spark-submit", "--master", master, "--class", _CLASS, *given, "spark-internal"],
            stdout=self.log.open("wb"), stderr=subprocess.STDOUT, env=environment, cwd=place, start_new_session=True,
        )  # fmt: skip
        self.url = f"sc://127.0.0.1:{port}"
        self._wait(port)

    def _wait(self, port: int) -> None:
        import time

        ends = time.monotonic() + _START_SECONDS
        while time.monotonic() < ends and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.2)
        self.close()
        raise RuntimeError(f"no Connect server: {self.log.read_text()[-2000:]}")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def __enter__(self) -> ConnectServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
