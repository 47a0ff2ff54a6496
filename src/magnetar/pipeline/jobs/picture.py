"""The picture of a run: what each table got, when it was worked on, and how far each partition has been read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.pipeline.jobs.outcome import FlowEvent, RunReport

BLUE, RED, INK, GREY, PALE = "#2f6db3", "#c0392b", "#24292f", "#6b7480", "#dfe5ec"
_MAX_PARTITIONS = 16


def draw(report: RunReport, events: Sequence[FlowEvent], path: Path) -> bool:
    """Draw the picture; False where there is no matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    lines = max(len(report.tables), min(_partitions(report), _MAX_PARTITIONS))
    figure = Figure(figsize=(11, 1.5 + 0.34 * lines), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(headline(report), x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    rows, times, read = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1.15, 1, 1]})
    _rows(rows, report)
    _times(times, report, events)
    _read(read, report)
    for each in (rows, times, read):
        each.invert_yaxis()
        each.margins(y=0.03)
        each.tick_params(labelsize=8.5, length=0, labelcolor=INK)
        each.spines[["top", "right", "left", "bottom"]].set_visible(False)
    figure.savefig(path, dpi=110)
    return True


def headline(report: RunReport) -> str:
    """Return the run in a line."""
    letters = f"{report.dead_letters:,} dead letter{'' if report.dead_letters == 1 else 's'}"
    behind = f"{report.lag:,} behind" if report.lag else "nothing left to read"
    return f"{report.records:,} records in {report.seconds:.1f} s  ·  {letters}  ·  {behind}"


def _rows(axes: Any, report: RunReport) -> None:
    _title(axes, "rows added")
    added = [max(each.added, 0) for each in report.tables]
    colors = [RED if each.table.endswith("_dead_letters") else BLUE for each in report.tables]
    names = [each.table for each in report.tables]
    bars = axes.barh(names, added, color=colors, height=0.5)
    texts = [f"{each.added:+,}  of {each.rows:,}" for each in report.tables]
    axes.bar_label(bars, texts, padding=4, fontsize=8.5, color=GREY)
    axes.set_xlim(0, max([*added, 1]) * 1.75)
    axes.set_xticks([])


def _times(axes: Any, report: RunReport, events: Sequence[FlowEvent]) -> None:
    _title(axes, "when, in seconds of the run")
    began = {each.table: each.seconds for each in events if each.state == "STARTING"}
    for number, each in enumerate(report.tables):
        start = began.get(each.table)
        axes.barh(number, report.seconds, color=PALE, height=0.08)
        if start is not None and each.seconds:
            bar = axes.barh(number, each.seconds, left=start, color=BLUE, height=0.5)
            label = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            axes.bar_label(bar, [f"{each.seconds:.1f} s"], padding=5, fontsize=8.5, color=GREY, bbox=label)
    axes.set_yticks(range(len(report.tables)), [""] * len(report.tables))
    axes.set_xlim(0, max(report.seconds * 1.15, 0.1))
    axes.tick_params(axis="x", labelcolor=GREY)


def _read(axes: Any, report: RunReport) -> None:
    every = [(f"{t.topic}-{p.partition}", p) for t in report.topics for p in t.partitions]
    shown = sorted(sorted(every, key=lambda each: -each[1].lag)[:_MAX_PARTITIONS], key=every.index)
    more = f", {len(shown)} of {len(every)} partitions" if len(shown) < len(every) else ""
    _title(axes, f"read of what is there{more}")
    for number, (_, each) in enumerate(shown):
        share = 1.0 if each.end == each.first else (each.next_offset - each.first) / (each.end - each.first)
        axes.barh(number, 1, color=PALE, height=0.5)
        axes.barh(number, share, color=BLUE, height=0.5)
        text, color = (f"{each.lag:,} behind", RED) if each.lag else ("all", GREY)
        axes.text(1.03, number, text, va="center", fontsize=8.5, color=color)
    axes.set_yticks(range(len(shown)), [name for name, _ in shown])
    axes.set_xlim(0, 1.45)
    axes.set_xticks([])


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, fontsize=9.5, color=GREY, loc="left")


def _partitions(report: RunReport) -> int:
    return sum(len(each.partitions) for each in report.topics)
