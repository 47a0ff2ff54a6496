"""Iceberg's own REST catalog in a process of its own, as a test's catalog service."""

from __future__ import annotations

import subprocess
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark

ROOT = Path(__file__).parents[2]


class RestCatalog:
    """Serves a warehouse directory on a free port of this machine, until it is closed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.warehouse = directory / "warehouse"
        jars = subprocess.run(
            ["bash", "-c", f". {ROOT}/compat/jars.sh; jars iceberg-rest"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert jars.returncode == 0, jars.stderr
        spark = Path(pyspark.__file__).parent / "jars"
        hadoop = [
            str(each) for each in (*spark.glob("hadoop-client-*.jar"), *spark.glob("jcl-over-slf4j*.jar"))
        ]
        command = ["java", "-Xmx256m", "-cp", ":".join([f"{jars.stdout.strip()}/*", *hadoop]),
                   str(ROOT / "compat/iceberg-rest/RestCatalog.java"),
                   str(directory / "catalog.db"), f"file:{self.warehouse}"]  # fmt: skip
        self.log = directory / "catalog.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port.isdigit(), self.log.read_text()
        self.uri = f"http://127.0.0.1:{port}"

    def environment(self, name: str) -> dict[str, str]:
        """Return PyIceberg's configuration for this catalog under a name, as environment variables."""
        prefix = f"PYICEBERG_CATALOG__{name.upper()}__"
        return {f"{prefix}TYPE": "rest", f"{prefix}URI": self.uri}

    def __enter__(self) -> RestCatalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class Between:
    """Stands between a client and the catalog, and does with commits to tables what ``fault`` says.

    None passes them on; ``unanswered`` passes them on and hangs up instead of an answer; ``refused`` answers
    500 and passes nothing on; ``late`` answers 504 and passes them on when `pass_on` is called.
    """

    def __init__(self, uri: str) -> None:
        self.fault: str | None = None
        self.commits = 0
        self._late: list[tuple[str, bytes]] = []
        between = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                commit = self.command == "POST" and b'"assert-' in body
                between.commits += commit
                fault = between.fault if commit else None
                if fault == "late":
                    between._late.append((self.path, body))
                if fault in ("late", "refused"):
                    self._give(504 if fault == "late" else 500, b"{}")
                    return
                status, answer = between._send(self.command, uri + self.path, body)
                if fault == "unanswered":
                    self.close_connection = True
                    return
                self._give(status, answer)

            do_GET = do_POST = do_DELETE = do_HEAD = _any

            def _give(self, status: int, answer: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else answer)

            def log_message(self, *_: Any) -> None: ...

        self._to = uri
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def _send(method: str, url: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def pass_on(self) -> None:
        """Make the commits that were answered and not made."""
        while self._late:
            path, body = self._late.pop(0)
            status, answer = self._send("POST", self._to + path, body)
            assert status == 200, answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
