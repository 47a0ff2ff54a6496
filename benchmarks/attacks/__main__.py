"""Attack a broker in all ways known, one after the other, with an innocent client beside it; print a table.

    python -m benchmarks.attacks [NAME...] [--list] [--json FILE] [--first]
    python -m benchmarks.attacks --page

A name selects all attacks that begin with it. Everything stays on loopback and is bounded. ``--json`` adds outcomes to
a file, so that all can be made in slices. Without ``--first`` the machine should do nothing else.
The status is 1 if a bar was missed: no attack may make the innocent client wait above 50 ms, or the broker take more
than its budget for clients and 64 MB beside it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.attacks import (
    bounds,
    coordinators,
    http,
    kafka,
    many,
    more,
    page,
    periodic,
    pulsar,
    pulsar_parts,
    pulsar_rows,
)
from benchmarks.attacks.attack import Attack, Outcome, made
from benchmarks.attacks.priority import before_all_else

ATTACKS: tuple[Attack, ...] = (
    *kafka.ATTACKS,
    *many.ATTACKS,
    *coordinators.ATTACKS,
    *more.ATTACKS,
    *bounds.ATTACKS,
    *pulsar.ATTACKS,
    *pulsar_rows.ATTACKS,
    *pulsar_parts.ATTACKS,
    *http.ATTACKS,
    *periodic.ATTACKS,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--first", action="store_true", help="served before others on the machine; wants root"
    )
    parser.add_argument(
        "--page", action="store_true", help="write docs/attacks.md from what was kept, and no more"
    )
    given = parser.parse_args()
    if given.page:
        page.write()
        return 0
    if given.first:
        before_all_else()
    chosen = [each for each in ATTACKS if not given.names or each.name.startswith(tuple(given.names))]
    if given.list:
        print("\n".join(each.name for each in chosen))
        return 0
    print("| attack | longest wait, ms | median | growth, MB | took, s | stolen, ms | |")
    print("|---|---:|---:|---:|---:|---:|---|")
    outcomes = []
    for attack in chosen:
        outcome = made(attack)
        outcomes.append(outcome)
        print(_row(outcome), flush=True)
        if given.json:
            _keep(given.json, outcome, anew=bool(given.names))
    return int(not all(each.meets_the_bar for each in outcomes))


def _row(outcome: Outcome) -> str:
    missed = "" if outcome.meets_the_bar else " MISSED"
    return (
        f"| {outcome.name} | {outcome.longest_ms:.1f} | {outcome.median_ms:.2f} | {outcome.growth_mb:+.0f} "
        f"| {outcome.seconds:.1f} | {outcome.stolen_ms:.0f} | {outcome.told}{missed} |"
    )


def _keep(file: Path, outcome: Outcome, *, anew: bool) -> None:
    """Keep what came of one; of some that are made anew beside others, each says at which commit."""
    kept = json.loads(file.read_text()) if file.exists() else {"outcomes": {}}
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    day = datetime.now(UTC).date().isoformat()
    if anew:
        kept["outcomes"][outcome.name] = outcome._asdict() | {"commit": commit, "day": day}
    else:
        kept |= {"commit": commit, "day": day}
        kept["outcomes"][outcome.name] = outcome._asdict()
    file.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
