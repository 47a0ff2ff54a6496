"""The house's rooms: each has a page and a floor, and the sheet in ``docs/design.md`` is made of these."""

from __future__ import annotations

import pytest

from tools.rooms_sheet import PAGE, floors, page_of, rooms, written


def test_the_sheet_is_as_the_rooms_are() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "run python tools/rooms_sheet.py"


def test_each_room_stands_on_one_floor() -> None:
    names = [room for floor in floors() for room in floor]
    assert len(names) == len(set(names))
    assert set(names) == rooms()


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_rooms_page_begins_with_a_sentence(room: str) -> None:
    first = " ".join(page_of(room).split("\n\n")[0].split())
    assert len(first) > 20, f"src/magnetar/{room}/__init__.py says nothing of the room"
    assert first.endswith(".")
