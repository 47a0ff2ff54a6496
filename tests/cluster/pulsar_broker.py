"""A broker of Apache Pulsar's own release on the ZooKeeper and bookies of a test, and its admin REST.

Maven brings the release once (`benchmarks.peers.pulsar`); where there is no Maven, and no release, tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from benchmarks.peers.pulsar import pulsar_home
from tests.cluster.servers import Cluster, die_with_parent, free_port, java

INDEXED = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "transactionCoordinatorEnabled": "true",
}
"""With the index that we need, and as KoP wanted it."""
_OPENER = build_opener(ProxyHandler({}))


def release() -> Path:
    """Return where Pulsar's release is, brought if need be, or skip the test."""
    java()
    try:
        return pulsar_home()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        if shutil.which("mvn"):
            raise
        pytest.skip(f"there is no Maven here to bring Pulsar's release: {error}")


class PulsarBroker:
    """``pulsar broker``, with its release's settings but for addresses, quorums and what is asked for."""

    def __init__(self, cluster: Cluster, directory: Path, **settings: str) -> None:
        self.pulsar, self.http = free_port(), free_port()
        self._directory = directory
        self._metadata = f"zk:{cluster.hosts}/house"
        self._bookies = f"zk+hierarchical://{cluster.hosts}/ledgers"
        ours = {
            "metadataStoreUrl": self._metadata,
            "configurationMetadataStoreUrl": self._metadata,
            "bookkeeperMetadataServiceUri": self._bookies,
            "clusterName": "house",
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "brokerServicePort": str(self.pulsar),
            "webServicePort": str(self.http),
            "managedLedgerDefaultEnsembleSize": "2",
            "managedLedgerDefaultWriteQuorum": "2",
            "managedLedgerDefaultAckQuorum": "2",
            "brokerShutdownTimeoutMs": "20000",
            **settings,
        }
        released = (release() / "conf" / "broker.conf").read_text().splitlines()
        kept = [line for line in released if line.split("=", 1)[0].strip() not in ours]
        self._conf = directory / f"pulsar-broker-{self.http}.conf"
        self._conf.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in ours.items())]) + "\n")
        self.log = directory / f"pulsar-broker-{self.http}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.pulsar}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http}"

    def prepare(self) -> None:
        """Set the cluster's metadata up as Pulsar's own is, before anything of ours is there."""
        self.run(
            "pulsar",
            "initialize-cluster-metadata",
            *("--cluster", "house", "--metadata-store", self._metadata),
            *("--configuration-metadata-store", self._metadata),
            *("--existing-bk-metadata-service-uri", self._bookies),
            *("--web-service-url", self.http_url, "--broker-service-url", self.service_url),
        )

    def start(self) -> None:
        """Start it and wait until it serves."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [str(release() / "bin" / "pulsar"), "broker"],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                preexec_fn=die_with_parent,
            )
        while True:
            try:
                assert self._process.poll() is None, self.log.read_text()[-5000:]
                self.ask("GET", "brokers/health")
                return
            except (URLError, OSError):
                time.sleep(0.1)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PULSAR_BROKER_CONF": str(self._conf),
            "PULSAR_LOG_DIR": str(self._directory / "pulsar-logs"),
            "PULSAR_MEM": "-Xms256m -Xmx512m -XX:MaxDirectMemorySize=512m",
            "PULSAR_GC": "-XX:+UseSerialGC",
            "PULSAR_EXTRA_OPTS": "-XX:TieredStopAtLevel=1",
        }

    def end(self, sent: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(sent)
            process.wait()

    def run(self, tool: str, *arguments: str) -> str:
        """Run one of the release's tools and return what it says."""
        done = subprocess.run(
            [str(release() / "bin" / tool), *arguments],
            capture_output=True,
            text=True,
            env=self._environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def admin(self, *arguments: str) -> str:
        """Run ``pulsar-admin``."""
        return self.run("pulsar-admin", "--admin-url", self.http_url, *arguments)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask the admin REST; return its JSON."""
        data = None if body is None else json.dumps(body).encode()
        made = Request(
            f"{self.http_url}/admin/v2/{path}",
            data=data,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with _OPENER.open(made, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text and text[:1] in b'{["tfn0123456789-' else text
