"""The page of benchmarks has the figures of the JSON beside it, missed ones first; a run replaces what it measured."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import report
from benchmarks.bars import BARS
from benchmarks.figures import FILE, GROUPS, Figures
from benchmarks.past import comparisons
from benchmarks.pictures import IMAGES
from benchmarks.samples import Bar, Samples

ABOUT = {"date": "2030-01-01", "mode": "full", "commit": "abc", "machine": "one"}


def test_the_page_has_the_figures_of_the_json() -> None:
    page = report.PAGE.read_text()
    assert report.page(Figures.load(), page) == page, "run python -m benchmarks.report"


def test_every_group_tells_what_it_misses_before_what_it_meets() -> None:
    for name in (group.key for group in GROUPS):
        part = report.PAGE.read_text().split(f"<!-- {name}: written")[1].split("<!-- end of")[0]
        verdicts = re.findall(r"\| (met|\*\*missed\*\*) \|$", part, re.MULTILINE)
        assert verdicts == sorted(verdicts), name  # "**" comes before letters
        assert verdicts


def test_a_run_replaces_what_it_measured_and_leaves_the_rest(tmp_path: Path) -> None:
    bar, other = BARS[0], next(each for each in BARS if each.measure != BARS[0].measure)
    figures, samples = Figures.load(), Samples()
    before = figures.median(other.measure, other.ours)
    for value in (1.0, 5.0, 3.0):
        samples.add(bar.measure, bar.ours, value)
    figures.take(samples, ABOUT)
    figures.save(tmp_path / "figures.json")
    again = Figures.load(tmp_path / "figures.json")
    assert again.median(bar.measure, bar.ours) == 3.0
    assert again.median(other.measure, other.ours) == before
    assert again.groups["kafka"] == ABOUT
    assert again.groups["spark"] == Figures.load().groups["spark"]


def test_a_missed_bar_of_the_worst_kind_stands_first() -> None:
    bars = [Bar("a", "x", None, 10), Bar("b", "x", None, 10), Bar("c", "x", None, 10)]
    samples = Samples()
    for measure, value in (("a", 5), ("b", 20), ("c", 40)):
        samples.add(measure, "x", value)
    figures = Figures({}, {})
    figures.take(samples, ABOUT)
    assert [bar.measure for bar, _ in figures.measured(bars)] == ["c", "b", "a"]


def test_every_bar_belongs_to_one_group() -> None:
    bars = [bar for group in GROUPS for bar in group.bars]
    assert len(set(bars)) == len(bars)
    assert set(BARS) <= set(bars)
    assert FILE.exists()


def test_the_newest_comparison_with_our_past_is_the_pages_table_and_all_are_drawn() -> None:
    found = comparisons()
    assert [each["date"] for each in found] == sorted(each["date"] for each in found)
    newest = found[-1]
    page = report.PAGE.read_text()
    assert f"| measure | {newest['old']} | {newest['new']} | ratio, median |" in page
    for measure, figures in newest["measures"].items():
        row = re.search(rf"^\| {re.escape(measure)} \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", page, re.MULTILINE)
        assert row
        assert [float(cell) for cell in row.groups()] == [figures[name] for name in ("old", "new", "ratio")]
        assert all(measure in each["measures"] for each in found), "the picture has a line for each"
    assert (IMAGES / "past.png").is_file()
