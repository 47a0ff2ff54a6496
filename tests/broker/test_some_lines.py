"""Lines that clients can provoke: some a minute, the others counted."""

from __future__ import annotations

import logging

import pytest

from magnetar.base.some_lines import EVERY_S, MOST, OneLineEach, SomeLines


def test_most_lines_of_a_minute_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 1000.0
    lines = SomeLines(logging.getLogger("magnetar.test"), lambda: now_s)
    for number in range(MOST + 300):
        lines.warning("refused %d", number)
    assert [each.getMessage() for each in caplog.records] == [f"refused {n}" for n in range(MOST)]
    caplog.clear()
    now_s += EVERY_S - 0.001
    lines.warning("still the same minute")
    assert not caplog.records
    now_s += 0.001
    lines.warning("refused %d", 7)
    now_s += EVERY_S
    lines.warning("refused %d", 8)
    said = ["301 more lines like the next one were left out", "refused 7", "refused 8"]
    assert [each.getMessage() for each in caplog.records] == said
    assert {each.levelname for each in caplog.records} == {"WARNING"}


def test_one_line_about_each_topic_and_not_too_many(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 1000.0
    lines = OneLineEach(logging.getLogger("magnetar.test"), lambda: now_s)
    for number in range(300):
        lines.error("a", "a %d", number)
        lines.error("b", "b %d", number)
    assert [each.getMessage() for each in caplog.records] == ["a 0", "b 0"]
    for number in range(MOST + 10):
        lines.error(f"topic {number}", "one of many")
    assert len(caplog.records) == MOST
    assert caplog.records[2].getMessage() == "one of many (598 more lines like this one were left out)"
    caplog.clear()
    now_s += EVERY_S
    lines.error("a", "a %d", 7)
    lines.error("b", "b %d", 7)
    assert [each.getMessage() for each in caplog.records] == [
        "a 7 (12 more lines like this one were left out)",
        "b 7",
    ]
    assert {each.levelname for each in caplog.records} == {"ERROR"}
