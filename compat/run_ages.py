#!/usr/bin/env python3
"""Ask Kafka's clients of every age the same, and look at what is stored then.

    compat/run_ages.py --magnetar                          all of ages/clients.json against a fresh standalone broker
    compat/run_ages.py --magnetar --place cluster          the same against a cluster; proxy: through a proxy before one
    compat/run_ages.py --kafka                             the same against Apache Kafka
    compat/run_ages.py --magnetar --client java --version 3.7.2 --step codec_gzip

Clients are installed into the cache when they are first asked. Results are merged into compat/results/ages.json. Ends
with status 1 when a step fails that is not known to fail on Kafka too.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from places import PLACES, cluster
from run import HERE
from versions import version

sys.path.insert(0, str(HERE.parent))

from ages.catalogue import Age, ages, started_by
from ages.drive import Program
from ages.steps import CLOSED, NAMES, OPEN, Asked, outcomes
from apps import topics

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar

RESULTS = HERE / "results" / "ages.json"
AGO_MS = 3_600_000
"""How old record 0 is: no retention takes it, and no broker refuses it as of the future."""
_QUICK = "group.initial.rebalance.delay.ms=0"
Outcomes = dict[str, dict[str, Any]]


@contextlib.contextmanager
def broker(name: str, place: str, creates: bool) -> Iterator[str]:
    """The address of a fresh broker, which makes topics by itself or not."""
    settings = (_QUICK, f"auto.create.topics.enable={str(creates).lower()}")
    if name == "magnetar" and place != "standalone":
        with cluster(place, *settings) as (_, addresses):
            yield addresses["kafka"]
        return
    kind: type[Magnetar | Kafka] = (
        type("MagnetarOfAges", (Magnetar,), {"settings": settings})
        if name == "magnetar"
        else type("KafkaOfAges", (Kafka,), {"extra": settings})
    )
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-ages-", ignore_cleanup_errors=True) as folder,
        kind(Path(folder) / name) as server,
    ):
        yield server.address


def _warm(address: str) -> None:
    """Have a fresh broker find its coordinators and producer ids: Kafka's first answer is that it does not know yet."""
    topics.make(address, "warm", 1)
    topics.produce(address, "warm", [(None, "up", [])])


def asked_of(age: Age, address: str, steps: Sequence[Callable[[Asked], None]], logs: Path) -> Outcomes:
    """One version's outcomes of these steps."""
    if not steps:
        return {}
    t0 = int(time.time() * 1000) - AGO_MS
    command, environment = started_by(age)
    arguments = [address, str(t0), *([",".join(age.without)] if age.without else [])]
    found: Outcomes = {}
    prefix = f"{age.client}-{age.version}-{uuid.uuid4().hex[:6]}"
    with Program(command, arguments, environment, logs / f"{age.client}-{age.version}.log") as program:
        asked = Asked(program, address, prefix, t0, frozenset(age.without))
        for step, outcome in outcomes(asked, steps):
            found[step] = outcome
            mark = "ok  " if outcome["ok"] else "knwn" if step in age.fails else "FAIL"
            print(f"{mark} {age.label:26} {step:14} {outcome['detail']}", flush=True)
    return found


def keep(column: str, found: dict[Age, Outcomes]) -> None:
    """Merge outcomes: results[column][client][version] = {date, broker, steps}."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for age, outcomes_ in found.items():
        entry = results.setdefault(column, {}).setdefault(age.client, {}).setdefault(age.version, {})
        entry.setdefault("steps", {}).update(outcomes_)
        entry["steps"] = {step: each for step, each in entry["steps"].items() if step in age.steps}
        entry |= {"date": today, "broker": version(column)}
    known = {(age.client, age.version) for age in ages()}
    for column_ in results.values():
        for client, versions in column_.items():
            for gone in [each for each in versions if (client, each) not in known]:
                del versions[gone]
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    for name in ("magnetar", "kafka"):
        where.add_argument(f"--{name}", dest="broker", action="store_const", const=name)
    parser.add_argument("--place", choices=list(PLACES), default="standalone", help="what --magnetar starts")
    parser.add_argument("--client", action="append", default=[])
    parser.add_argument("--version", action="append", default=[])
    parser.add_argument("--step", action="append", default=[], choices=NAMES)
    parser.add_argument("--jobs", type=int, default=2, help="how many versions are asked at a time")
    parser.add_argument("--dry", action="store_true", help="keep no results")
    options = parser.parse_args()
    if options.place != "standalone" and options.broker != "magnetar":
        parser.error("--place is for --magnetar")

    chosen = [
        age
        for age in ages()
        if (not options.client or age.client in options.client)
        and (not options.version or age.version in options.version)
    ]
    column = PLACES[options.place] if options.broker == "magnetar" else options.broker
    logs = Path(tempfile.mkdtemp(prefix="magnetar-ages-logs-"))
    found: dict[Age, Outcomes] = {age: {} for age in chosen}
    lock = threading.Lock()
    for creates, steps in ((True, OPEN), (False, CLOSED)):
        wanted = [step for step in steps if not options.step or step.__name__ in options.step]
        if not wanted:
            continue
        with (
            broker(options.broker, options.place, creates) as address,
            ThreadPoolExecutor(options.jobs) as threads,
        ):
            _warm(address)

            def one(age: Age, wanted: Sequence[Any] = wanted, address: str = address) -> None:
                mine = [step for step in wanted if step.__name__ in age.steps]
                outcomes_ = asked_of(age, address, mine, logs)
                with lock:
                    found[age] |= outcomes_
                    if not options.dry:
                        keep(column, {age: found[age]})

            list(threads.map(one, chosen))
    failed = sum(
        not outcome["ok"] and step not in age.fails
        for age, outcomes_ in found.items()
        for step, outcome in outcomes_.items()
    )
    print(f"{failed} failed; see {logs}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
