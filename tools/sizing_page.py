"""Write the tables of docs/sizing.md from the files of the benchmarks; ``--check`` says whether the page is current.

Figures of disk use are constants here, and a test stores records and compares what they take.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "sizing.md"
ENTRY_BYTES = 133
"""What one batch takes on disk beyond its records: frame, entry metadata, and the batch's own head."""
RECORD_BYTES = 10
"""What one record takes beyond key, value and headers, at most while its value is shorter than 8 KiB."""
_SCALING = "[Scaling](scaling.md)"
_BENCHMARKS = "[Benchmarks](benchmarks.md)"


def figures() -> dict[str, Any]:
    """Return the measured figures by their names in docs/benchmarks.json."""
    found: dict[str, Any] = json.loads((ROOT / "docs" / "benchmarks.json").read_text())["figures"]
    return found


def scaling() -> dict[str, Any]:
    """Return the points of benchmarks/scaling.json."""
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "scaling.json").read_text())
    return found


def memory() -> list[tuple[str, str, str]]:
    """Return the rows of memory: what there is, how many MB the process holds, and where that was measured."""
    idle = figures()["memory idle, MB"]["magnetar, flush=always"]["median"]
    rows = [("an idle broker", f"{idle:,.0f} MB", _BENCHMARKS)]
    wanted = {
        "topics": (1_000, 10_000, 100_000),
        "partitions": (1_000, 10_000),
        "connections": (1_000, 3_000),
    }
    for what, numbers in wanted.items():
        points = {point["n"]: point["rss_mb"] for point in scaling()[what]}
        told = {"topics": "topics of one partition", "partitions": "partitions of one topic"}.get(what, what)
        rows += [(f"{number:,} {told}", f"{points[number]:,.0f} MB", _SCALING) for number in numbers]
    offsets = figures()["a million committed offsets: memory, MB"]["magnetar, flush=always"]["median"]
    rows.append(("1,000 groups with 1,000 committed offsets each", f"{offsets:,.0f} MB", _BENCHMARKS))
    return rows


def processor() -> list[tuple[str, str, str]]:
    """Return the rows of processor time: what is done, what it takes of a core, and where that was measured."""
    rows = []
    for name, flush, told in (
        ("produce 100 B, defaults, broker us/record", "always", "produce, 100 B, Java producer's defaults"),
        ("produce 1000 B, defaults, broker us/record", "always", "produce, 1 KB, Java producer's defaults"),
        (
            "produce 1000 B, tuned, broker us/record",
            "always",
            "produce, 1 KB, `batch.size=65536 linger.ms=5`",
        ),
        (
            "consume 1000 B, librdkafka defaults, broker us/record",
            "os",
            "consume, 1 KB, librdkafka's defaults",
        ),
        ("TLS, produce 1000 B, broker us/record", "os", "produce, 1 KB, tuned, TLS"),
    ):
        cost = figures()[name][f"magnetar, flush={flush}"]["median"]
        rate = float(f"{1e6 / cost:.2g}")
        rows.append(
            (f"{told} (`flush={flush}`)", f"{cost:.2f} us a record, {rate:,.0f} records/s", _BENCHMARKS)
        )
    alone = next(point for point in scaling()["topics"] if point["n"] == 1_000)["produce"]["cpu_us"]
    rows.append(
        ("one record in a batch of its own, 1,000 topics (`flush=os`)", f"{alone:.0f} us a record", _SCALING)
    )
    beats = figures()["10,000 members' heartbeats, % of a core"]["magnetar, flush=always"]["median"]
    rows.append(("heartbeats of 10,000 group members", f"{beats:.0f} % of a core", _BENCHMARKS))
    return rows


def disk() -> list[tuple[str, str, str]]:
    """Return the rows of disk use: batches of some sizes, what a record takes, and what tests that."""
    rows = []
    for size, count in ((100, 1), (100, 100), (1000, 1), (1000, 100)):
        whole = size + RECORD_BYTES + ENTRY_BYTES / count
        rows.append(
            (
                f"value of {size:,} B, {count} in a batch",
                f"{whole:,.0f} B",
                "`tests/docs/test_sizing_page.py`",
            )
        )
    return rows


def page(text: str) -> str:
    """Return the page with its tables as the benchmarks have them now."""
    for name, heads, rows in (
        ("memory", "what | memory of the process", memory()),
        ("processor", "work | processor time of the broker", processor()),
        ("disk", "record without key and headers, not compressed | on disk", disk()),
    ):
        begin, end = f"<!-- {name}: written by tools/sizing_page.py -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin, 1)
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        text = f"{before}{begin}\n| {heads} | source |\n|---|---:|---|\n{table}\n{end}{rest.split(end, 1)[1]}"
    return text


def main() -> int:
    """Write the page, or with ``--check`` return 1 if it is not what it should be."""
    text = PAGE.read_text()
    if "--check" in sys.argv[1:]:
        return int(page(text) != text)
    PAGE.write_text(page(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
