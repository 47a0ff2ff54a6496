"""The mutants are what they say, and the lists fit the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tools.mutants.generate import Mutant, mutants_of, sample
from tools.mutants.lists import ROOT, areas, planted, verdicts
from tools.mutants.runner import Copy, NotGreen

SOURCE = b'''
"""A module's words: 1 < 2."""

LIMIT = 5


def at_most(number: int, most: int = LIMIT) -> int:
    """Words."""
    _log.info("looked at %d", number + 1)
    if number > most and not most < 0:  # caf\xc3\xa9
        raise ValueError(f"{number} > {most}")
    self.seen += 1
    return min(number, most)
'''


def changed() -> dict[str, Mutant]:
    return {mutant.key.partition(": ")[2]: mutant for mutant in mutants_of("m.py", SOURCE)}


def test_each_kind_of_change_is_made() -> None:
    assert set(changed()) == {
        "number > most and not most < 0 -> not (number > most and not most < 0)",
        "number > most and not most < 0 -> False",
        "number > most and not most < 0 -> (number > most or not most < 0)",
        "number > most -> (number >= most)",
        "most < 0 -> (most <= 0)",
        "0 -> 1",
        'raise ValueError(f"{number} > {most}") -> pass',
        "self.seen += 1 -> pass",
        "1 -> 2",
        "min(number, most) -> None",
        "min -> max",
    }


def test_a_change_is_made_in_its_place_alone() -> None:
    mutant = changed()["most < 0 -> (most <= 0)"]
    after = mutant.applied(SOURCE)
    assert b"if number > most and not (most <= 0):  # caf\xc3\xa9" in after
    assert len(after) == len(SOURCE) + len("(=)")
    assert (mutant.where, mutant.line) == ("at_most", 10)


def test_a_sample_is_the_same_for_the_same_seed_and_a_part_of_a_larger_one() -> None:
    mutants = list(changed().values())
    assert sample(mutants, 4, "a") == sample(list(reversed(mutants)), 4, "a") == sample(mutants, 8, "a")[:4]
    assert sample(mutants, 8, "a") != sample(mutants, 8, "b")


def test_the_planted_lines_are_there_and_can_be_planted() -> None:
    cases = planted()
    assert len({case.mutant.key for case in cases}) == len(cases) >= 40


@pytest.mark.slow
def test_who_is_said_to_survive_exists() -> None:
    said, sources = verdicts(), {source for area in areas() for source in area.sources}
    keys = {case.mutant.key for case in planted()}
    for path in {key.partition("::")[0] for key in said} & sources:
        keys |= {mutant.key for mutant in mutants_of(path, (ROOT / path).read_bytes())}
    assert set(said) <= keys, "changed meanwhile: run them again"


@pytest.mark.parametrize("status", range(6))
def test_a_folder_without_quick_tests_or_with_failing_ones_is_recorded(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pytest's statuses: passed, failed, interrupted, an error in pytest, wrongly called, nothing to run."""

    class Traces:
        is_marked = False

        def mark(self, home: Path) -> None:
            self.is_marked = True

        def unmark(self, home: Path) -> None:
            self.is_marked = False

        def record(self, run: Callable[[Path, Sequence[str]], None]) -> None:
            assert self.is_marked
            run(tmp_path / "notes", ["tests/x/test_x.py"])

    copy, traces = object.__new__(Copy), Traces()
    copy.home = tmp_path
    monkeypatch.setattr(copy, "_run", lambda *_: (status, "said"))
    if status in (2, 3, 4):
        with pytest.raises(NotGreen, match=f"status {status}"):
            copy.record(cast(Any, traces))
    else:
        copy.record(cast(Any, traces))
    assert not traces.is_marked
