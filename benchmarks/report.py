"""The figures as tables for people and as JSON for programs. ``--check`` tells whether the page is current."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import FILE, GROUPS, Figures, Group
from benchmarks.peers.jars import KAFKA_VERSION
from benchmarks.peers.pulsar import PULSAR_VERSION
from benchmarks.samples import Bar, Medians, Samples
from benchmarks.spark_bars import READY, SPARK_BARS

PAGE = FILE.with_suffix(".md")
_TOLD = 3
_ALL = tuple(bar for group in GROUPS for bar in group.bars)


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


def table(medians: Medians, bars: Sequence[Bar] = _ALL) -> str:
    """Return one row per bar, as Markdown: medians of both, their ratio, and what it must be."""
    rows = ["| measure | ours | theirs | ratio | bar | |", "|---|---:|---:|---:|---:|---|"]
    rows += [row for bar in bars if (row := _row(medians, bar))]
    return "\n".join(rows)


def bounds(figures: Medians) -> str:
    """Return the rows of which it is known what can be reached at all, as Markdown."""
    rows = ["| measure | ours, ratio | rows that lie there ready-made, ratio | bar |", "|---|---:|---:|---:|"]
    for bar in SPARK_BARS:
        ours, most = figures.value(bar), figures.value(bar._replace(ours=READY))
        if ours is None or most is None or bar.against is None:
            continue
        rows.append(f"| {bar.measure} | {ours:.2f} x | {most:.2f} x | {_limit(bar)} |")
    return "\n".join(rows)


def summary(figures: Figures) -> str:
    """Return one row for each group: how many bars are met, and which are missed by most."""
    rows = ["| what | against | met | missed by most |", "|---|---|---:|---|"]
    for group in GROUPS:
        found = figures.measured(group.bars)
        missed = [
            f"{_short(bar, group)} {_shown(bar, value)}" for bar, value in found if not bar.is_met(value)
        ]
        told = "; ".join(missed[:_TOLD]) or "none"
        more = f"; {len(missed) - _TOLD} more" if len(missed) > _TOLD else ""
        met = f"{len(found) - len(missed)} of {len(found)}"
        rows.append(f"| [{group.title}](#{group.key}) | {group.against} | {met} | {told}{more} |")
    return "\n".join(rows)


def write(samples: Samples, about: dict[str, str], path: Path) -> None:
    """Write everything as JSON."""
    bars = [{**bar._asdict(), "value": samples.value(bar)} for bar in _ALL]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "bars": bars, "samples": samples.values}, indent=1) + "\n")


def write_page(samples: Samples, about: dict[str, str]) -> None:
    """Put a run's figures into docs/benchmarks.json, and the page's tables and pictures anew."""
    from benchmarks import pictures

    figures = Figures.load()
    figures.take(samples, about)
    figures.save()
    PAGE.write_text(page(figures, PAGE.read_text()))
    pictures.draw(figures)


def page(figures: Figures, text: str) -> str:
    """Return the page with its tables anew; what people wrote around them stays."""
    text = _put(text, "summary", summary(figures))
    for group in GROUPS:
        bars = [bar for bar, _ in figures.measured(group.bars)]
        content = f"{table(figures, bars)}\n\n*{_facts(figures.groups[group.key])}*"
        if group.key == "spark":
            content += f"\n\nWhat any source written in Python could reach:\n\n{bounds(figures)}"
        text = _put(text, group.key, content)
    return text


def _put(text: str, name: str, content: str) -> str:
    before, rest = text.split(f"<!-- {name}: written by the benchmarks -->", 1)
    _, after = rest.split(f"<!-- end of {name} -->", 1)
    return f"{before}<!-- {name}: written by the benchmarks -->\n{content}\n<!-- end of {name} -->{after}"


def _facts(about: dict[str, str]) -> str:
    told = [f"{name} {value}" for name, value in about.items() if name not in ("date", "mode", "commit")]
    return f"{about['date']}, {about['mode']}, commit {about['commit']}; {', '.join(told)}."


def _row(medians: Medians, bar: Bar) -> str | None:
    value = medians.value(bar)
    if value is None:
        return None
    ours = _figure(medians.median(bar.measure, bar.ours) or 0.0)
    theirs = medians.median(bar.measure, bar.against or "kafka")
    verdict = "met" if bar.is_met(value) else "**missed**"
    ratio = f"{value:.2f} x" if bar.against else ""
    note = f" (vs {bar.against})" if bar.against not in (None, "kafka") else ""
    shown = "" if theirs is None else _figure(theirs)
    name = f"{bar.measure} ({bar.ours.removeprefix('magnetar, ')})"
    return f"| {name}{note} | {ours} | {shown} | {ratio} | {_limit(bar)} | {verdict} |"


def _limit(bar: Bar) -> str:
    return f"{'≥' if bar.higher_is_better else '≤'} {bar.limit:g}{' x' if bar.against else ''}"


def _short(bar: Bar, group: Group) -> str:
    """Return a bar's name without what all of its group share."""
    name = bar.measure
    for prefix in ("Spark, ", "Pulsar, "):
        name = name.removeprefix(prefix)
    for unit in (", records/s", ", rows/s", ", messages/s"):
        name = name.removesuffix(unit)
    about = bar.ours.removeprefix("magnetar, ")
    told = [] if group.key in ("spark", "formats", "shapes") else [about]
    told += [f"vs {bar.against}"] if bar.against == "kafka, flush.messages=1" else []
    return f"{name} ({', '.join(told)})" if told else name


def _shown(bar: Bar, value: float) -> str:
    unit = " x" if bar.against else ""
    return f"{value:.2f} of {bar.limit:g}{unit}"


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


def main() -> int:
    """Write the page from the JSON, or with ``--check`` tell by the exit status whether it is current."""
    current = PAGE.read_text()
    wanted = page(Figures.load(), current)
    if "--check" in sys.argv:
        return int(wanted != current)
    from benchmarks import pictures

    PAGE.write_text(wanted)
    pictures.draw(Figures.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
