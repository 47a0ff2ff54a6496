"""The page of public reports names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"
TESTS = Path(__file__).parents[1] / "pipeline"
ROW = re.compile(r"^\| (?!report \||---)(.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")


def test_each_report_has_a_test_that_is_there() -> None:
    rows = [row.split(" | ") for row in ROW.findall(PAGE.read_text())]
    assert len(rows) >= 19
    for report, _, _, tests in rows:
        found = TEST.findall(tests)
        assert found, report
        for file, name in found:
            assert f"def {name}(" in (TESTS / file).read_text(), (report, file, name)
