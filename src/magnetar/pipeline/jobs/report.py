"""The report of a run: ``report.json`` for programs, ``report.html`` with ``report.png`` for people."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.picture import draw

if TYPE_CHECKING:
    from magnetar.pipeline.jobs.outcome import FlowEvent, RunReport

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: #24292f }
h1 { font-size: 1.4em; margin-bottom: 0 }
h2 { font-size: 1.05em; margin: 2em 0 .3em } .when { color: #6b7480; margin: 0 }
.cards { display: flex; flex-wrap: wrap; gap: .8em; margin: 1.2em 0 }
.card { background: #f4f6f9; border-radius: 8px; padding: .6em 1.1em; min-width: 8em; color: #6b7480 }
.card b { display: block; font-size: 1.5em; line-height: 1.3; color: #24292f } .card.bad b { color: #c0392b }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
td, th { padding: .35em .8em; text-align: right; border-bottom: 1px solid #e6eaef }
td:first-child, th:first-child { text-align: left; padding-left: 0 }
th { color: #6b7480; font-weight: 500; border-bottom: 1px solid #9aa4b0 }
img { max-width: 100% }
"""


def write_report(report: RunReport, events: Sequence[FlowEvent], place: Path) -> None:
    """Write the report's files into the run's directory. Without matplotlib there is no picture."""
    content = asdict(report) | {"events": [asdict(each) for each in events]}
    (place / "report.json").write_text(json.dumps(content, indent=2) + "\n")
    drawn = draw(report, events, place / "report.png")
    (place / "report.html").write_text(_page(report, picture=drawn))


def reports(directory: Path) -> list[dict[str, Any]]:
    """Return the reports that a project's runs left, the newest last."""
    found = []
    for path in sorted(directory.glob("*/report.json")):
        try:
            found.append(json.loads(path.read_text()))
        except ValueError:
            continue  # a run that was killed while it wrote it
    return found


def _page(report: RunReport, *, picture: bool) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.started_ms / 1000))
    tables = [
        (t.table, f"{t.rows:,}", f"{t.added:+,}", f"{t.files:,}", f"{t.seconds:.1f}") for t in report.tables
    ]
    partitions = [
        (f"{topic.topic}-{p.partition}", f"{p.next_offset:,}", f"{p.end:,}", f"{p.lag:,}")
        for topic in report.topics
        for p in topic.partitions
    ]
    cards = (
        ("records", f"{report.records:,}", False),
        ("seconds", f"{report.seconds:.1f}", False),
        ("records per second", f"{report.records_per_s:,.0f}", False),
        ("dead letters", f"{report.dead_letters:,}", report.dead_letters > 0),
        ("records behind", f"{report.lag:,}", report.lag > 0),
    )
    told = "".join(
        f'<div class="card{" bad" if bad else ""}"><b>{value}</b>{name}</div>' for name, value, bad in cards
    )
    return f"""<!doctype html>
<meta charset="utf-8"><title>Pipeline run {when}</title><style>{_STYLE}</style>
<h1>Pipeline run</h1>
<p class="when">{when}</p>
<div class="cards">{told}</div>
{'<p><img src="report.png" alt="rows per table, when each ran, how far each partition is read"></p>' if picture else ""}
<h2>Tables</h2>
{_table(("table", "rows", "added", "files", "seconds"), tables)}
{_moved(report)}<h2>Topics</h2>
{_table(("partition", "next offset", "end", "lag"), partitions)}
"""


def _moved(report: RunReport) -> str:
    lines = "".join(f"<li>{html.escape(each)}</li>" for each in report.moved)
    return f"<h2>Changed types</h2>\n<ul>{lines}</ul>\n" if lines else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return f"<table>\n<tr>{cells}</tr>\n{body}</table>"
