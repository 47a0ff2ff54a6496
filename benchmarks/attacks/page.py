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
at that commit. The last column has what the same, or the nearest to it that was tried, did to 4553f4e, before any of
it was mended.

| attack | longest wait, ms | growth, MB | what came of it | at 4553f4e |
|---|---:|---:|---|---|
"""
_BEFORE = {
    "kafka: 300 gone amid Fetch": "300 descriptors left for 24 days",
    "kafka: 300 reset amid Fetch": "300 descriptors left for 24 days",
    "kafka: gone with queues": "75 to 98 % of a processor for minutes",
    "kafka: 12 halves of 99 MB": "1,186 MB",
    "kafka: 50 x 20 fetches unread": "951 MB",
    "kafka: 12 sessions of 249,000 rows": "1,372 MB, kept for good",
    "kafka: 120 strangers' halves": "0.5 MB each",
    "kafka: Produce, 249,000 partitions": "1.9 s (300,000)",
    "kafka: CreateTopics, 100,000 only validated": "1.3 s",
    "pulsar: ack set of 500,000 words": "2.7 s with 80,000 words, quadratic",
    "pulsar: 3 ack sets of 2.4 MB": "stopped for the 5 minutes until it was killed",
    "pulsar: 20,000 words, 50 times": "0.15 s each",
    "pulsar: ACK of 300,000 ids": "1.25 s (600,000)",
    "pulsar: 16,000 hash ranges": "2.7 s",
    "pulsar: 65,536 hash ranges": "45 s, reckoned",
    "pulsar: unread GET_TOPICS": "1,083 MB in 10 s, without an end",
    "pulsar: 3,000 PRODUCERs in one write": "half of the waits above 0.4 to 1.9 s (30,000)",
    "pulsar: 3,000 SUBSCRIBEs in one write": "half of the waits above 0.4 to 1.9 s (30,000)",
    "pulsar: Avro of 19 records": "0.9 s",
    "pulsar: Avro of 60 records": "doubles with each record: 3.8 s with 21",
    "pulsar: (a|a) 29 times": "7.4 s",
    "pulsar: pattern of 5 MB": "9 s and 500 MB",
    "pulsar: 860,000 messages, read by Kafka": "64 s and 3.7 GB (11,000,000)",
    "pulsar: the same by six consumers": "4.2 s with machine code, six times 64 s without (11,000,000)",
    "pulsar: 20,000 first chunks, read by Kafka": "2.8 s at every Fetch",
    "pulsar: 120 strangers' halves": "643 MB",
    "http: 100 strangers' bodies": "1,155 MB",
    "http: 60 guesses": "an honest login 6.9 s",
    "http: 2,100 silent connections": "taken in without a limit, for good",
    "registry: Avro of 40 records": "nobody registers for weeks, reckoned",
    "registry: Avro of 40 records, 20 times": "nobody registers for weeks, reckoned",
    "registry: JSON, 40 definitions": "nobody registers; 1 s with 16 definitions, doubles with each",
    "registry: chain of 22 references": "6 s",
    "20,000 groups become cursors": "0.3 to 1.1 s",
    "20,000 open topics": "60 to 100 ms each second, for good",
}
"""What attacks did before, as it was written down then: waits of the innocent client, or the broker's memory."""


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
    if "commit" in outcome:
        told = "; ".join(filter(None, (told, f"made anew on {outcome['day']} at {outcome['commit']}")))
    before = _BEFORE.get(outcome["name"], "").replace("|", "\\|")
    return f"| {name} | {wait} | {growth} | {told} | {before} |\n"


def write() -> None:
    """Write the page anew."""
    PAGE.write_text(text(json.loads(RESULTS.read_text())))
