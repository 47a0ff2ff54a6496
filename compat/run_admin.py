#!/usr/bin/env python3
"""Let Pulsar's administration tools do what administrators do, and check the outcome.

    compat/run_admin.py --magnetar                       pulsar-admin, and pulsarctl if it is installed
    compat/run_admin.py --magnetar --place cluster       in a cluster; proxy: through a proxy
    compat/run_admin.py --pulsar                         the same checks on Apache Pulsar
    compat/run_admin.py --magnetar --tool pulsar-admin --check reset

A whole run is kept in compat/results/admin.json. Ends with status 1 when a check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from admin import checks, pulsarctl_checks
from admin.tools import PulsarAdmin, Pulsarctl, is_there
from broker import standalone
from outcomes import outcome
from places import ELSEWHERE, PATIENT, PLACES, cluster
from run import HERE
from versions import version

sys.path.insert(0, str(HERE.parent))

from examples.cluster.servers import Broker, Proxy

TOOLS = {"pulsar-admin": (PulsarAdmin, checks), "pulsarctl": (Pulsarctl, pulsarctl_checks)}
RESULTS = HERE / "results" / "admin.json"


@contextlib.contextmanager
def served(broker: str) -> Iterator[dict[str, str]]:
    """Addresses of a fresh broker by protocol."""
    if broker == "magnetar":
        with standalone(protocols=("pulsar", "http")) as ready:
            yield dict(pair.split("=") for pair in ready.split())
        return
    if broker in ELSEWHERE:
        with cluster(broker, PATIENT, own=_named) as (_, addresses):
            yield addresses
        return
    from benchmarks.peers.pulsar import Pulsar

    with tempfile.TemporaryDirectory() as directory, Pulsar(Path(directory) / "pulsar") as peer:
        yield {"pulsar": peer.address, "http": peer.http_address}


def _named(server: Broker | Proxy) -> dict[str, object]:
    """The cluster's name is what the checks know it by."""
    return {} if isinstance(server, Proxy) else {"cluster.name": "standalone"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--magnetar", action="store_true")
    where.add_argument("--pulsar", action="store_true")
    where.add_argument(
        "--at", nargs=2, metavar=("PULSAR", "HTTP"), help="a Pulsar that runs; nothing is kept"
    )
    parser.add_argument("--place", choices=list(PLACES), default="standalone", help="what --magnetar starts")
    parser.add_argument("--tool", action="append", choices=list(TOOLS))
    parser.add_argument("--check", action="append", default=[])
    options = parser.parse_args()

    broker = PLACES[options.place] if options.magnetar else "pulsar"
    kept: dict[str, dict[str, object]] = {}
    failed = 0
    running = options.at and contextlib.nullcontext({"pulsar": options.at[0], "http": options.at[1]})
    with running or served(broker) as addresses:
        for name, (kind, module) in TOOLS.items():
            if name not in (options.tool or TOOLS) or not is_there(name):
                continue
            tool = kind(f"http://{addresses['http']}")
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            outcomes: dict[str, dict[str, object]] = {}
            kept[name] = {
                "version": tool.version,
                "date": today,
                "broker": version(broker),
                "checks": outcomes,
            }
            for check in module.CHECKS + (module.ONLY_OURS if options.magnetar else ()):
                if options.check and check.__name__ not in options.check:
                    continue
                outcomes[check.__name__] = outcome(check, tool, addresses, of=name)
                failed += not outcomes[check.__name__]["ok"]
            tool.close()
    if not options.at and not options.check:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results.setdefault(broker, {}).update(kept)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(f"{failed} failed" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
