"""Apache Pulsar: broker, bookie and metadata in one process, with the values of its release's standalone.conf.

As released, standalone does not flush its journal (``journalSyncData=false``): acknowledged messages lie in the page
cache. The release comes from Maven Central once and stays in ``$PEERS_HOME`` (default ``~/.cache/peers``).
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.server import PATIENCE_S, Server, free_port

PULSAR_VERSION = "4.0.8"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_ARTIFACT = f"org.apache.pulsar:pulsar-server-distribution:{PULSAR_VERSION}:tar.gz:bin"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of loopback


def pulsar_home() -> Path:
    """Return the release's folder; have Maven bring the release if it is not there."""
    peers = Path(os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "peers") / "pulsar"
    home = peers / f"apache-pulsar-{PULSAR_VERSION}"
    if (home / "bin" / "pulsar-perf").exists():
        return home
    peers.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", _COPY, f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={peers}"]
    subprocess.run(command, check=True, cwd=peers)
    (archive,) = peers.glob(f"pulsar-server-distribution-{PULSAR_VERSION}*.tar.gz")
    # Python's own tarfile has no safe way to unpack before 3.11.4, and Debian 12 has 3.11.2.
    subprocess.run(["tar", "--extract", "--no-same-owner", f"--file={archive}"], check=True, cwd=peers)
    archive.unlink()
    return home


class Pulsar(Server):
    """As released; only addresses, ports and directories are ours, and ``settings``."""

    name = "pulsar"
    settings: Mapping[str, str] = {}
    advertised = "127.0.0.1"
    ready_path = "/admin/v2/namespaces/public/default"

    def free_port(self, scheme: str) -> int:
        """Return where it is to listen for ``pulsar`` or ``http``."""
        return free_port()

    def prepare(self) -> None:
        self.port, self._http = self.free_port("pulsar"), self.free_port("http")
        self._bookie = free_port()
        ours = {
            "bindAddress": "127.0.0.1",
            "advertisedAddress": self.advertised,
            "brokerServicePort": str(self.port),
            "webServicePort": str(self._http),
            "listeningInterface": "lo",
            "httpServerEnabled": "false",  # the bookie's own, on a fixed port
            **self.settings,
        }
        released = self.released_conf().read_text().splitlines()
        kept = [line for line in released if line.split("=", 1)[0].strip() not in ours]
        changed = [f"{name}={value}" for name, value in ours.items()]
        self._conf = self.data / "standalone.conf"
        self._conf.write_text("\n".join([*kept, *changed]) + "\n")

    def released_conf(self) -> Path:
        """Return the file of settings that ours change."""
        return pulsar_home() / "conf" / "standalone.conf"

    def command(self) -> list[str]:
        data = self.data.absolute()  # the script changes into the release's folder
        return [
            "env",
            f"PULSAR_STANDALONE_CONF={self._conf.absolute()}",
            f"PULSAR_LOG_DIR={data / 'logs'}",
            str(pulsar_home() / "bin" / "pulsar"),
            "standalone",
            *("--advertised-address", self.advertised, "--no-functions-worker", "--no-stream-storage"),
            *("--bookkeeper-port", str(self._bookie), "--bookkeeper-dir", str(data / "bookkeeper")),
            *("--metadata-dir", str(data / "metadata")),
        ]

    @property
    def service_url(self) -> str:
        return f"pulsar://{self.address}"

    @property
    def http_address(self) -> str:
        return f"127.0.0.1:{self._http}"

    def start(self) -> None:
        """Start the process and wait until it has made the default namespace: before that it refuses topics."""
        self.launch()
        url = f"http://{self.http_address}{self.ready_path}"
        end = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                with _OPENER.open(url, timeout=3):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise RuntimeError(f"{self.name} does not serve; see {self.data / 'server.log'}")

    def rss_mb(self) -> float:
        """Return the resident memory (MB of a million bytes) now, every page counted once.

        Its collector, ZGC, maps the heap three times, which ``VmRSS`` counts three times; ``Pss`` does not.
        """
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError(f"{self.name} has no memory")
