"""Sarama's own functional tests, pointed at a broker that already runs.

The source is a checkout of IBM/sarama. The suite wants five brokers, each behind a Toxiproxy, by which its tests cut
connections: one broker behind five proxies stands for them, and so its topics have one replica. What the text says of
ports and replicas is replaced in a copy of the source. Tests that stop a broker want Docker, and fail without it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from run import HOME

from suites.go_runs import GoPackage
from suites.kafka_served import Listener, free_ports, listening

KINDS = ("magnetar", "kafka")
BROKER_VERSION = "4.3.1"
"""The newest of the suite's own CI: it decides which tests leave themselves out."""
PORTS = tuple(map(str, range(29091, 29096)))
"""Of this machine, where the text has the proxies."""
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
"""The release that the suite's docker-compose.yml names."""
# What the suite's docker-compose.yml gives its brokers.
SETTINGS = (
    "node.id=1",
    "broker.rack=1",
    "auto.create.topics.enable=false",
    "group.initial.rebalance.delay.ms=0",
)
SUITE_SECONDS = 1800
PATIENCE_S = 60
_OPENER = build_opener(ProxyHandler({}))


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` of broker and the proxies before it; give where Toxiproxy is asked, and the proxies' ports."""
    api, *proxies = free_ports(1 + len(PORTS))
    listener = Listener("PLAINTEXT", "PLAINTEXT", told=proxies[0])
    with listening(kind, [listener], *SETTINGS) as (broker,):
        toxiproxy = subprocess.Popen(
            [_toxiproxy(), "-port", str(api)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            for number, port in enumerate(proxies, 1):
                _proxy(
                    api,
                    {
                        "name": f"kafka{number}",
                        "listen": f"127.0.0.1:{port}",
                        "upstream": broker,
                        "enabled": True,
                    },
                )
            yield " ".join(map(str, (f"http://127.0.0.1:{api}", *proxies)))
        finally:
            toxiproxy.terminate()
            toxiproxy.wait()


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (test, passed | failed | skipped, why) for each test; parts of a test are not told of."""
    api, *ports = bootstrap.split()
    copy = HOME / "sarama-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    names: list[str] = []
    for file in [*sorted(copy.glob("functional_*_test.go")), copy / "functional_test.go"]:
        text = file.read_text()
        names += re.findall(r"^func (Test(?!Main\b)\w+)", text, re.MULTILINE)
        file.write_text(_pointed(text, ports))
    environment = {"TOXIPROXY_ADDR": api, "KAFKA_VERSION": BROKER_VERSION}
    go = GoPackage(copy, ".", SUITE_SECONDS, ["-mod=mod", "-tags=functional"], environment)
    yield from go.outcomes(tests or names)


def _pointed(text: str, ports: Sequence[str]) -> str:
    """The text of tests with our ports, and with the one replica that a broker by itself has."""
    addresses = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    text = text.replace('fmt.Sprintf("127.0.0.1:%d", 29090+i)', f"[]string{{{addresses}}}[i-1]")
    return re.sub(r"(ReplicationFactor:\s+|partition\.Isr\) != )3", r"\g<1>1", text)


def _toxiproxy() -> Path:
    """Toxiproxy's server, built on first use."""
    folder = HOME / "bin" / "toxiproxy"
    if not folder.exists():
        subprocess.run(["go", "install", TOXIPROXY], env={**os.environ, "GOBIN": str(folder)}, check=True)
    return folder / "server"


def _proxy(api: int, proxy: dict[str, object]) -> None:
    body = json.dumps(proxy).encode()
    request = Request(f"http://127.0.0.1:{api}/proxies", body, {"Content-Type": "application/json"})
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            _OPENER.open(request).close()
            return
        except URLError:  # it does not listen yet
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
