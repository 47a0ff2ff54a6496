"""Tests that are tried again (decision 158): a second try begins anew, and what failed at first stands beside it.

Brokers that a module or a session shares are ended after a failure and begun anew for the second try. There it finds no
topics, members and files of the first, of which it would fail, and which would hide why the first did.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

AT_FIRST = "at first"
PYTESTS_OWN = ("_pytest.", "pytest_asyncio", "xdist", "_hypothesis")
"""Modules whose fixtures know nothing of a test: folders for files, event loops."""
_found = pytest.StashKey[list[tuple[str, str]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """End what the first try shared with other tests; whoever asks for it next has it made."""
    if getattr(item, "execution_count", 1) > 1 and isinstance(item, pytest.Function):
        for made in item._fixtureinfo.name2fixturedefs.values():
            if made[-1].scope != "function" and not made[-1].func.__module__.startswith(PYTESTS_OWN):
                made[-1].finish(item._request)


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
