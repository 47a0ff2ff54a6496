"""The figures as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bars import BARS
from benchmarks.format_bars import FORMAT_BARS
from benchmarks.peers.jars import KAFKA_VERSION
from benchmarks.peers.pulsar import PULSAR_VERSION
from benchmarks.pulsar_bars import PULSAR_BARS
from benchmarks.samples import Bar, Samples
from benchmarks.spark_bars import READY, SPARK_BARS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- figures: written by the benchmarks -->", "<!-- end of figures -->"
_SPARK_BEGIN, _SPARK_END = "<!-- spark: written by the benchmarks -->", "<!-- end of spark -->"
_ALL = (*BARS, *SPARK_BARS, *PULSAR_BARS, *FORMAT_BARS)
_FORMATS_BEGIN, _FORMATS_END = "<!-- formats: written by the benchmarks -->", "<!-- end of formats -->"
_PULSAR_BEGIN, _PULSAR_END = "<!-- pulsar: written by the benchmarks -->", "<!-- end of pulsar -->"


def circumstances(mode: str) -> dict[str, str]:
    """Tell when, of what and where this run was."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "mode": mode,
        "commit": _output("git", "rev-parse", "--short", "HEAD") or "unknown",
        "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory_gb():.0f} GB, {platform.system()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
        "pulsar": PULSAR_VERSION,
        "java": _output("java", "-version").split('"')[1],
    }


def table(samples: Samples, bars: Sequence[Bar] = _ALL) -> str:
    """Give one row per bar, as Markdown: medians of both, their ratio, and what it must be."""
    rows = ["| measure | ours | theirs | ratio | bar | |", "|---|---:|---:|---:|---:|---|"]
    rows += [row for bar in bars if (row := _row(samples, bar))]
    return "\n".join(rows)


def bounds(samples: Samples) -> str:
    """Give the rows of which it is known what can be reached at all, as Markdown."""
    rows = [
        "| measure | ours | ready-made | theirs | ours, ratio | ready-made, ratio | bar |",
        f"|---|{'---:|' * 6}",
    ]
    for bar in SPARK_BARS:
        ours, most = samples.value(bar), samples.value(bar._replace(ours=READY))
        if ours is None or most is None or bar.against is None:
            continue
        figures = [samples.median(bar.measure, each) or 0.0 for each in (bar.ours, READY, bar.against)]
        limit = f"{'≥' if bar.higher_is_better else '≤'} {bar.limit:g} x"
        row = [bar.measure, *map(_figure, figures), f"{ours:.2f} x", f"{most:.2f} x", limit]
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def all_figures(samples: Samples) -> str:
    """Give every measure of every server: median, lowest, highest, how many."""
    rows = ["| measure | server | median | from | to | runs |", "|---|---|---:|---:|---:|---:|"]
    for measure, servers in samples.values.items():
        for server, values in servers.items():
            median = samples.median(measure, server) or 0.0
            figures = (_figure(median), _figure(min(values)), _figure(max(values)), str(len(values)))
            rows.append(f"| {measure} | {server} | {' | '.join(figures)} |")
    return "\n".join(rows)


def write(samples: Samples, about: dict[str, str], path: Path) -> None:
    """Write everything as JSON."""
    bars = [{**bar._asdict(), "value": samples.value(bar)} for bar in _ALL]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "bars": bars, "samples": samples.values}, indent=1) + "\n")


def write_page(samples: Samples, about: dict[str, str]) -> None:
    """Put the tables into docs/benchmarks.md, between its marks; what people wrote around them stays."""
    facts = ", ".join(f"{name} {value}" for name, value in about.items()) + "."
    if _has_any(samples, BARS):
        _put(_BEGIN, _END, f"{facts}\n\n{table(samples, BARS)}\n\n## All figures\n\n{all_figures(samples)}")
    if _has_any(samples, SPARK_BARS):
        _put(_SPARK_BEGIN, _SPARK_END, f"{facts}\n\n{table(samples, SPARK_BARS)}\n\n{bounds(samples)}")
    if _has_any(samples, PULSAR_BARS):
        _put(_PULSAR_BEGIN, _PULSAR_END, f"{facts}\n\n{table(samples, PULSAR_BARS)}")
    if _has_any(samples, FORMAT_BARS):
        _put(_FORMATS_BEGIN, _FORMATS_END, f"{facts}\n\n{table(samples, FORMAT_BARS)}")


def _has_any(samples: Samples, bars: Sequence[Bar]) -> bool:
    return any(samples.value(bar) is not None for bar in bars)


def _put(begin: str, end: str, content: str) -> None:
    """Put a part of the page anew."""
    before, rest = PAGE.read_text().split(begin, 1)
    _, after = rest.split(end, 1)
    PAGE.write_text(f"{before}{begin}\n{content}\n{end}{after}")


def _row(samples: Samples, bar: Bar) -> str | None:
    value = samples.value(bar)
    if value is None:
        return None
    ours = _figure(samples.median(bar.measure, bar.ours) or 0.0)
    theirs = samples.median(bar.measure, bar.against or "kafka")
    sign = "≥" if bar.higher_is_better else "≤"
    against = " x" if bar.against else ""
    verdict = "met" if bar.is_met(value) else "**missed**"
    ratio = f"{value:.2f} x" if bar.against else ""
    note = f" (vs {bar.against})" if bar.against not in (None, "kafka") else ""
    shown = "" if theirs is None else _figure(theirs)
    name = f"{bar.measure} ({bar.ours.removeprefix('magnetar, ')})"
    return f"| {name}{note} | {ours} | {shown} | {ratio} | {sign} {bar.limit:g}{against} | {verdict} |"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
