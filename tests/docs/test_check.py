"""``make check`` finds the tests of a change, and says what is wrong with a commit's subject."""

from __future__ import annotations

import pytest

from tools.check import MAX_SUBJECT, affected, subject_fault


@pytest.mark.slow
def test_a_changed_module_brings_the_tests_that_import_it() -> None:
    assert "tests/ledger/test_cursor.py" in affected(["src/magnetar/ledger/cursors/cursor.py"])


def test_a_changed_room_brings_its_nearest_tests() -> None:
    assert "tests/compaction" in affected(["src/magnetar/ledger/compaction/compactor.py"])


def test_a_changed_helper_brings_the_tests_that_use_it() -> None:
    assert "tests/rest/test_broker_stats.py" in affected(["tests/waiting.py"])


def test_a_changed_test_brings_itself_alone() -> None:
    assert affected(["tests/docs/test_check.py"]) == ["tests/docs/test_check.py"]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Refuse a batch whose length lies\n\n" + "why " * 100, None),
        ("x" * MAX_SUBJECT, None),
        ("x" * (MAX_SUBJECT + 1), "characters"),
        ("Merge " + "x" * 100, None),
        ("\nbody", "empty"),
        ("Refuse a batch.", "full stop"),
    ],
)
def test_a_subject(message: str, fault: str | None) -> None:
    said = subject_fault(message)
    assert said is None if fault is None else said is not None and fault in said
