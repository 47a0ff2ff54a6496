#!/usr/bin/env python3
"""Ask Pulsar's clients of every age the same, and look at what is stored then.

    compat/run_pulsar_ages.py --magnetar                   all of pulsar_ages/clients.json on a fresh standalone broker
    compat/run_pulsar_ages.py --pulsar                     the same on Apache Pulsar
    compat/run_pulsar_ages.py --magnetar --client python --version 3.5.0

Clients are installed into the cache when they are first asked. Results are merged into
compat/results/pulsar_ages.json. Ends with status 1 when a step fails that does not fail on Pulsar too.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from run import HERE
from versions import version

sys.path.insert(0, str(HERE.parent))

from pulsar_ages.python_ages import BATCHED, SINGLE
from pulsar_ages.stored import CODECS, entries, faults_of

from benchmarks.peers.magnetar import MagnetarForPulsar
from benchmarks.peers.pulsar import Pulsar
from benchmarks.peers.server import free_port

RESULTS = HERE / "results" / "pulsar_ages.json"
CLIENTS = json.loads((HERE / "pulsar_ages" / "clients.json").read_text())
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_PATIENCE_S = 900
Outcomes = dict[str, dict[str, Any]]


def home() -> Path:
    """Where clients are installed, one folder for each version."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar" / "compat"
    return Path(os.environ.get("MAGNETAR_COMPAT_HOME") or caches) / "pulsar-ages"


def installed(client: str, release: str) -> Path:
    """The folder of this version of a client, which is fetched if need be."""
    place = home() / f"{client}-{release}"
    if (place / "ready").exists():
        return place
    if client == "python":
        interpreter = python_of(release)
        subprocess.run([interpreter, "-m", "venv", "--clear", place], check=True)
        wanted = [f"pulsar-client=={release}", "fastavro<2"]
        subprocess.run([place / "bin" / "pip", "install", "--quiet", *wanted], check=True)
    elif client == "go":
        _built(place, release)
    else:
        pom = HERE / "pulsar_ages" / "java" / "pom.xml"
        command = ["mvn", "-q", "-B", "-f", pom, f"-Dpulsar.version={release}", _COPY]
        subprocess.run([*command, f"-DoutputDirectory={place}", "-DincludeScope=runtime"], check=True)
    (place / "ready").touch()
    return place


def python_of(release: str) -> str:
    """The interpreter that a version of the Python client has wheels for: ours, or an older one, pyenv's if need be."""
    wanted = CLIENTS["python"]["interpreters"].get(release)
    if wanted is None:
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [str(each) for each in sorted(pyenv.glob(f"{wanted}*/bin/python"))] or [f"python{wanted}"]
    return found[-1]


def _built(place: Path, release: str) -> None:
    """Have Go build the program with this version of the client, and with the steps that it has."""
    sources = HERE / "pulsar_ages" / "go"
    place.mkdir(parents=True, exist_ok=True)
    more = "older.go" if release in CLIENTS["go"]["older"] else "newer.go"
    for name in ("go_ages.go", more):
        shutil.copy(sources / name, place)
    (place / "go.mod").write_text("module ages\n\ngo 1.26.0\n")
    module = f"github.com/apache/pulsar-client-go@v{release}"
    for command in (["go", "get", module], ["go", "build", "-mod=mod", "-o", "program", "."]):
        subprocess.run(command, check=True, cwd=place)


class MagnetarOfAges(MagnetarForPulsar):
    """With transactions, and the admin REST on a port that is known."""

    settings = ("transactionCoordinatorEnabled=true",)

    def prepare(self) -> None:
        super().prepare()
        self.http_address = f"127.0.0.1:{free_port()}"

    def command(self) -> list[str]:
        return [*super().command()[:-1], self.http_address]


class PulsarOfAges(Pulsar):
    """With transactions."""

    settings: ClassVar[Mapping[str, str]] = {"transactionCoordinatorEnabled": "true"}


@contextlib.contextmanager
def broker(name: str) -> Iterator[tuple[str, str]]:
    """The service URL and the admin URL of a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="magnetar-pulsar-ages-", ignore_cleanup_errors=True) as folder:
        kind = MagnetarOfAges if name == "magnetar" else PulsarOfAges
        with kind(Path(folder) / name) as server:
            yield server.service_url, f"http://{server.http_address}"


def asked_of(client: str, release: str, urls: tuple[str, str]) -> Outcomes:
    """One version's outcomes of all steps; what it produced has to be stored as it was sent, too."""
    prefix = f"{client}-{release.replace('.', '-')}-{uuid.uuid4().hex[:6]}"
    place = installed(client, release)
    if client == "python":
        command = [place / "bin" / "python", HERE / "pulsar_ages" / "python_ages.py", urls[0], prefix]
    elif client == "go":
        command = [place / "program", urls[0], prefix]
    else:
        command = ["java", "-Xmx384M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{place}/*"]
        command += [HERE / "pulsar_ages" / "java" / "JavaAges.java", *urls, prefix]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PATIENCE_S, env={**os.environ, "PYTHONPATH": ""}
    )
    found: Outcomes = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            each = json.loads(line)
            found[each.pop("step")] = each
    if done.returncode:
        found["ends"] = {"ok": False, "detail": f"status {done.returncode}: {done.stderr[-200:]}"}
    for codec in CODECS:
        step = found.get(f"produce_{codec}", {"ok": False})
        if step["ok"]:
            topic = f"persistent://public/default/{prefix}-produce_{codec}"
            there = entries(urls[0], topic, BATCHED + SINGLE)
            wrong = faults_of(there, codec, BATCHED, SINGLE)
            step |= {
                "ok": not wrong,
                "detail": "; ".join(wrong),
                "stored": {"entries": len(there), "bytes": sum(each.payload_bytes for each in there)},
            }
    return found


def kept() -> dict[str, Any]:
    """What earlier runs found."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def asked(chosen: str, client: str, release: str, urls: tuple[str, str]) -> int:
    """Ask one version, keep and print what came of it; give how many steps fail that do not on Pulsar."""
    steps, bad = asked_of(client, release, urls), 0
    results = kept()  # another run may have written meanwhile
    run = {"date": f"{datetime.date.today()}", "broker": version(chosen), "steps": steps}
    results.setdefault(chosen, {}).setdefault(client, {})[release] = run
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    theirs = results.get("pulsar", {}).get(client, {}).get(release, {}).get("steps", {})
    for name, each in steps.items():
        if not each["ok"]:
            known = chosen != "pulsar" and not theirs.get(name, {"ok": True})["ok"]
            bad += chosen != "pulsar" and not known
            print(f"{client} {release} {name}: {each['detail']}{' (on Pulsar too)' if known else ''}")
    print(f"{client} {release}: {sum(each['ok'] for each in steps.values())} of {len(steps)}", flush=True)
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--magnetar", action="store_const", const="magnetar", dest="broker")
    where.add_argument("--pulsar", action="store_const", const="pulsar", dest="broker")
    parser.add_argument(
        "--client", choices=CLIENTS, action="append", help="only this one, may be given again"
    )
    parser.add_argument("--version", action="append", help="only this one, may be given again")
    chosen = parser.parse_args()
    bad = 0
    with broker(chosen.broker) as urls:
        for client in chosen.client or CLIENTS:
            for release in CLIENTS[client]["versions"]:
                if not chosen.version or release in chosen.version:
                    bad += asked(chosen.broker, client, release, urls)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
