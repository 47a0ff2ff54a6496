"""What goes wrong slowly is noticed, lasts as long as it matters, and is said in words that help."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from magnetar.ledger.durations import Durations
from magnetar.node.conditions import Condition, Conditions
from magnetar.node.vitals import ClockWatch, JournalWatch, ending_soon, memory_limit


class Times:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """What a journal tells of its writes."""

    def __init__(self) -> None:
        self.flushes = Durations()
        self.writes_for_s = 0.0


def test_a_condition_is_logged_when_it_begins_once_a_minute_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = Times()
    conditions = Conditions(now)
    with caplog.at_level(logging.WARNING, "magnetar.conditions"):
        for text in ("little is left", "less is left", "less is left"):
            conditions.note(Condition.DISK, text, more="of it orders has 5")
        assert caplog.messages == ["disk: little is left; of it orders has 5"]
        assert conditions.texts() == ["disk: less is left"]
        now.now += 60
        conditions.note(Condition.DISK, "least is left")
        conditions.note(Condition.DISK, "")
        conditions.note(Condition.DISK, "")
    assert caplog.messages[1:] == ["disk: least is left", "disk: as it should be again"]
    assert conditions.texts() == []
    (table,) = [each for each in conditions.figures(None) if each is not None]
    assert ('{reason="disk"}', 0) in table.rows


def test_a_slow_write_counts_for_a_minute_and_one_under_way_at_once() -> None:
    now, engine = Times(), Engine()
    watch = JournalWatch(engine, now)  # type: ignore[arg-type]
    engine.flushes.add(0.9)
    assert watch.look() == ""
    engine.flushes.add(2.25)
    engine.flushes.add(0.001)
    assert "took 2.2 s" in watch.look()
    now.now += 59
    assert watch.look() != ""
    now.now += 2
    assert watch.look() == ""
    engine.writes_for_s = 7.0
    assert "took 7.0 s" in watch.look()


def test_a_clock_that_is_moved_is_told_for_ten_minutes_and_one_that_goes_is_not() -> None:
    now, wall = Times(), Times()
    watch = ClockWatch(wall, now)
    for each in (now, wall):
        each.now += 3600
    assert watch.look() == ""
    wall.now -= 30
    assert "moved back by 30 s" in watch.look()
    for each in (now, wall):
        each.now += 599
    assert watch.look() != ""
    for each in (now, wall):
        each.now += 2
    assert watch.look() == ""


def test_the_certificate_that_ends_first_is_told_from_a_month_before() -> None:
    day, now = 86400.0, 1e9
    assert ending_soon({"SSL": now + 31 * day}, now) == ""
    assert "listener b ends in 3 days" in ending_soon({"a": now + 9 * day, "b": now + 3 * day}, now)
    assert "ended 2 days ago" in ending_soon({"a": now - 2 * day}, now)


def test_a_control_groups_bound_is_found_and_none_is_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("1:name=systemd:/old\n0::/app/broker\n")
    assert memory_limit(tmp_path / "cgroup", tmp_path) is None
    (tmp_path / "app" / "broker").mkdir(parents=True)
    bound = tmp_path / "app" / "broker" / "memory.max"
    bound.write_text("268435456\n")
    assert memory_limit(tmp_path / "cgroup", tmp_path) == 268435456
    bound.write_text("max\n")
    assert memory_limit(tmp_path / "cgroup", tmp_path) is None
