"""The report of a run: ``report.json`` for programs, ``report.html`` with ``report.png`` for people."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.pipeline.jobs.run import FlowEvent, RunReport

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .2em 1em .2em 0; text-align: right }
td:first-child, th:first-child { text-align: left } th { border-bottom: 1px solid #999; font-weight: 600 }
img { max-width: 100% } .bad { color: #b00 }
"""


def write_report(report: RunReport, events: Sequence[FlowEvent], place: Path) -> None:
    """Write the report's files into the run's directory. Without matplotlib there is no picture."""
    content = asdict(report) | {"events": [asdict(each) for each in events]}
    (place / "report.json").write_text(json.dumps(content, indent=2) + "\n")
    drawn = _draw(report, place / "report.png")
    (place / "report.html").write_text(_page(report, picture=drawn))


def reports(directory: Path) -> list[dict[str, Any]]:
    """Give the reports that a project's runs left, the newest last."""
    found = []
    for path in sorted(directory.glob("*/report.json")):
        try:
            found.append(json.loads(path.read_text()))
        except ValueError:
            continue  # a run that was killed while it wrote it
    return found


def _page(report: RunReport, *, picture: bool) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.started_ms / 1000))
    bad = ' class="bad"' if report.dead_letters else ""
    tables = [
        (t.table, f"{t.rows:,}", f"{t.added:+,}", f"{t.files:,}", f"{t.seconds:.1f}") for t in report.tables
    ]
    partitions = [
        (f"{topic.topic}-{p.partition}", f"{p.next_offset:,}", f"{p.end:,}", f"{p.lag:,}")
        for topic in report.topics
        for p in topic.partitions
    ]
    return f"""<!doctype html>
<meta charset="utf-8"><title>Pipeline run {when}</title><style>{_STYLE}</style>
<h1>Pipeline run</h1>
<p>{when}: {report.records:,} records in {report.seconds:.1f} s ({report.records_per_s:,.0f} per second),
<span{bad}>{report.dead_letters:,} dead letters</span>, {report.lag:,} records behind.</p>
{'<p><img src="report.png" alt="rows and seconds per table, lag per partition"></p>' if picture else ""}
{_table(("table", "rows", "added", "files", "seconds"), tables)}
{_table(("partition", "next offset", "end", "lag"), partitions)}
"""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return f"<table>\n<tr>{cells}</tr>\n{body}</table>"


def _draw(report: RunReport, path: Path) -> bool:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    rows, seconds, lag = figure.subplots(1, 3)
    names = [each.table for each in report.tables]
    rows.barh(names, [max(each.added, 0) for each in report.tables], color="#3366aa")
    rows.set_title("rows added", fontsize=10)
    seconds.barh(names, [each.seconds for each in report.tables], color="#999999")
    seconds.set_title("seconds", fontsize=10)
    seconds.set_yticks([])
    partitions = [(f"{t.topic}-{p.partition}", p.lag) for t in report.topics for p in t.partitions][:40]
    lag.barh([name for name, _ in partitions], [each for _, each in partitions], color="#bb4444")
    lag.set_title("lag", fontsize=10)
    for each in (rows, seconds, lag):
        each.invert_yaxis()
        each.tick_params(labelsize=7)
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return True
