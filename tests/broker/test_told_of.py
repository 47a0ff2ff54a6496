"""Requests that name the same thing again and again."""

from __future__ import annotations

import pytest

from magnetar.serving import pace
from magnetar.serving.pace import told_of


async def test_each_name_is_looked_up_once_and_told_as_often_as_it_is_named() -> None:
    asked: list[str] = []

    def tell(name: str) -> str:
        asked.append(name)
        return name.upper()

    assert await told_of(["a", "b", "a", "a"], tell, lambda row: 0) == ["A", "B", "A", "A"]
    assert asked == ["a", "b"]


async def test_what_is_large_is_not_told_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MOST_AGAIN", 10)
    parts = {"a": 4, "b": 0, "c": 1000}
    told = await told_of(["a"] * 5 + ["b", "c"], lambda name: name, parts.__getitem__)
    assert told == ["a", "a", "a", "b", "c"], "twice more, of five parts each; what is new in any case"
