"""What failed at first, of tests that are tried again (decision 158): its text beside whatever the second try says.

A second try finds what the first left in a house that they share, and fails of that; its cause stands with the first.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

AT_FIRST = "at first"
_found = pytest.StashKey[list[tuple[str, str]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what failed at first into the report of what fails again, wherever that is printed or written."""
    report = yield
    if report.failed:
        if getattr(item, "execution_count", 1) > 1:
            report.sections += item.stash.get(_found, [])
        else:
            item.stash.setdefault(_found, []).append((f"{AT_FIRST}, in {report.when}", report.longreprtext))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what failed before it passed as one sees any other failure."""
    stats = terminalreporter.stats
    shown = {
        report.nodeid
        for report in (*stats.get("failed", []), *stats.get("error", []))
        if any(title.startswith(AT_FIRST) for title, _ in report.sections)
    }
    for report in stats.get("rerun", []):
        if report.nodeid in shown:
            continue
        terminalreporter.write_sep("_", f"{AT_FIRST}: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
        for title, content in report.sections:
            terminalreporter.write_sep("-", title)
            terminalreporter.write_line(content)
