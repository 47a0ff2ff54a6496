"""The page that tells what attacks came to: docs/attacks.md, made from results.json beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.attacks.attack import MAX_GROWTH_MB, MAX_WAIT_MS

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "attacks.md"
_HEAD = f"""# Attacks

What one client without rights to administer can do to the others: each attack is made on a broker of its own, on
loopback, beside an innocent Kafka client that asks for ApiVersions every 10 ms. The bars: that client never waits above
{MAX_WAIT_MS:.0f} ms, and the broker never takes more than {MAX_GROWTH_MB:.0f} MB beyond what it had (its budget for
clients, `memory.requests.bytes`, and 64 MB). What is missed is in bold. This page is made by
`python -m benchmarks.attacks --page` from what `python -m benchmarks.attacks --first --json
benchmarks/attacks/results.json` found, on two cores; with `--first` other work on the machine waits, but the
processors' caches and the disk are shared with it. For how long the system let the broker's event loop wait for a
processor is left out. Attacks that `--list` names and the table does not were not made
at that commit.

| attack | longest wait, ms | growth, MB | what came of it |
|---|---:|---:|---|
"""


def text(kept: dict[str, Any]) -> str:
    """Return the page for kept outcomes."""
    rows = [_row(each) for each in kept["outcomes"].values()]
    return _HEAD + "".join(rows) + f"\nMade on {kept['day']} at {kept['commit']}.\n"


def _row(outcome: dict[str, Any]) -> str:
    wait, growth = f"{outcome['longest_ms']:.0f}", f"{outcome['growth_mb']:+.0f}"
    if outcome["longest_ms"] > MAX_WAIT_MS:
        wait = f"**{wait}**"
    if outcome["growth_mb"] > MAX_GROWTH_MB:
        growth = f"**{growth}**"
    name, told = (outcome[key].replace("|", "\\|") for key in ("name", "told"))
    return f"| {name} | {wait} | {growth} | {told} |\n"


def write() -> None:
    """Write the page anew."""
    PAGE.write_text(text(json.loads(RESULTS.read_text())))
