"""What is decided of transactions, as a compaction is told: by producer, by offset, up to the last stable offset."""

from __future__ import annotations

from array import array

from magnetar.records.aborted import UNKNOWN, Decided


def test_an_offset_is_aborted_from_the_first_to_the_marker_of_its_own_producer() -> None:
    columns = array("q", [7, 8, 7]), array("q", [10, 11, 30]), array("q", [20, 25, 40])
    decided = Decided(columns, stable=100)
    found = {offset for offset in range(100) if decided.is_aborted(7, offset)}
    assert found == {*range(10, 21), *range(30, 41)}
    assert {offset for offset in range(100) if decided.is_aborted(8, offset)} == set(range(11, 26))
    assert not any(decided.is_aborted(9, offset) for offset in range(100))


def test_from_the_last_stable_offset_on_it_is_not_known() -> None:
    decided = Decided((array("q", [7]), array("q", [10]), array("q", [20])), stable=15)
    assert [decided.is_aborted(7, offset) for offset in (9, 10, 14, 15, 16)] == [
        False,
        True,
        True,
        None,
        None,
    ]
    assert [decided.is_aborted(8, offset) for offset in (14, 15)] == [False, None]


def test_without_a_list_nothing_is_known() -> None:
    assert UNKNOWN.is_aborted(7, 0) is None
    assert not UNKNOWN.is_known
    assert Decided((array("q"), array("q"), array("q")), stable=0).is_known
