#!/usr/bin/env python3
"""Let foreign clients work against one Kafka-protocol address and keep what they report.

    compat/run.py --magnetar                            every client against a fresh standalone broker
    compat/run.py --magnetar --place cluster            the same against a cluster; proxy: through a proxy before one
    compat/run.py --kafka                               the same against Apache Kafka, with the same settings
    compat/run.py --bootstrap HOST:PORT --column other  against a running broker: what kills it is left out
    compat/run.py --magnetar --client kcat --check nulls

Results are merged into compat/results/clients.json; compat/report.py turns that into docs/compatibility.md.
Ends with status 1 when a check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from places import PLACES
from stage import stage
from versions import version

HERE = Path(__file__).resolve().parent
HOME = Path(
    os.environ.get("MAGNETAR_COMPAT_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar" / "compat"
)
CLIENT_SECONDS = 1800


@dataclass(frozen=True)
class Client:
    """How one client's program is started; ``needs`` is its part of install.sh."""

    name: str
    needs: str
    command: Sequence[str]
    ready: Path | None = None


PYTHON = HOME / "python" / "bin" / "python"
CLIENTS = (
    Client("confluent-python", "python", (str(PYTHON), "clients/confluent_python.py"), PYTHON),
    Client("kafka-python", "python", (str(PYTHON), "clients/kafka_python.py"), PYTHON),
    Client("aiokafka", "python", (str(PYTHON), "clients/aiokafka_client.py"), PYTHON),
    Client("java", "java", ("./kafka-tools.sh", "clients/JavaClient.java")),
    Client("kafka-tools", "java", (sys.executable, "clients/kafka_tools.py")),
    Client("kcat", "", (sys.executable, "clients/kcat.py")),
    Client("sarama", "go", (str(HOME / "bin" / "sarama"),)),
    Client(
        "kafkajs",
        "node",
        ("node", "clients/node/kafkajs_client.mjs"),
        HOME / "node" / "node_modules" / "kafkajs",
    ),
)


def install(client: Client) -> None:
    """Fetch what the client needs unless it is there; Go's own cache makes its build a matter of moments."""
    if client.needs and not (client.ready and client.ready.exists()):
        subprocess.run([str(HERE / "install.sh"), client.needs], check=True)


def reports(client: Client, bootstrap: str, checks: Sequence[str]) -> Iterator[dict]:
    """Run one client and give its reports as they come; a program that dies is one failed report."""
    command = [*client.command, "--bootstrap", bootstrap]
    for check in checks:
        command += ["--only", check]
    environment = {**os.environ, "NODE_MODULES": str(HOME / "node" / "node_modules"), "NO_PROXY": "127.0.0.1"}
    process = subprocess.Popen(
        command, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    complaints: list[str] = []
    threading.Thread(target=lambda: complaints.extend(process.stderr or ()), daemon=True).start()
    watchdog = threading.Timer(CLIENT_SECONDS, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    if process.returncode not in (0, -9):
        detail = f"the program ended with {process.returncode}: {''.join(complaints)[-400:]}"
        yield {"client": client.name, "version": "", "check": "program", "ok": False, "detail": detail}


def keep(file: Path, column: str, found: list[dict]) -> None:
    """Merge reports into the results file: results[column][client] = {version, date, checks}."""
    results = json.loads(file.read_text()) if file.exists() else {}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for client in {report["client"] for report in found}:  # a program that died may not have died this time
        results.get(column, {}).get(client, {"checks": {}})["checks"].pop("program", None)
    for report in found:
        entry = results.setdefault(column, {}).setdefault(report["client"], {"checks": {}})
        entry |= {
            "version": report["version"] or entry.get("version", ""),
            "date": today,
            "broker": version(column),
        }
        entry["checks"][report["check"]] = {"ok": report["ok"], "detail": report["detail"]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    for name in ("magnetar", "kafka"):
        where.add_argument(
            f"--{name}", dest="broker", action="store_const", const=name, help="start one for the run"
        )
    parser.add_argument("--place", choices=list(PLACES), default="standalone", help="what --magnetar starts")
    parser.add_argument("--column", help="the name to keep results under (default: what was started)")
    parser.add_argument("--client", action="append", choices=[c.name for c in CLIENTS])
    parser.add_argument("--check", action="append", default=[])
    parser.add_argument("--json", type=Path, default=HERE / "results" / "clients.json")
    options = parser.parse_args()
    if options.place != "standalone" and options.broker != "magnetar":
        parser.error("--place is for --magnetar")

    failed = 0
    started = PLACES[options.place] if options.broker == "magnetar" else options.broker
    column = options.column or started or "magnetar"
    serving = (
        stage(options.broker, options.place) if options.broker else contextlib.nullcontext(options.bootstrap)
    )
    with serving as bootstrap:
        for client in CLIENTS:
            if options.client and client.name not in options.client:
                continue
            install(client)
            found = []
            for report in reports(client, bootstrap, options.check):
                found.append(report)
                failed += not report["ok"]
                mark = "ok  " if report["ok"] else "FAIL"
                print(f"{mark} {client.name:18} {report['check']:18} {report['detail']}", flush=True)
            keep(options.json, column, found)
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
