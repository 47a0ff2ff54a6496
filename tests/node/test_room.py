"""What is kept of a disk for the broker itself, and what is told of it."""

from __future__ import annotations

import pytest

from magnetar.ledger.errors import StorageFull
from magnetar.ledger.room import Reserve, Room, Space
from magnetar.node.disk_watch import reserve_of

MIB = 1 << 20


def space(free: int, *, total: int = 1000 * MIB, inodes: int = 10_000, free_inodes: int = 9_000) -> Space:
    return Space(total, free, inodes, free_inodes)


@pytest.mark.parametrize(
    ("total", "least", "kept"),
    [(24 * MIB, -1, 24 * MIB // 20), (1 << 50, -1, 256 * MIB), (24 * MIB, 0, 0), (24 * MIB, 5, 5)],
)
def test_what_is_kept_is_a_part_of_a_small_file_system_and_little_of_a_large_one(
    total: int, least: int, kept: int
) -> None:
    assert reserve_of(space(0, total=total), least).bytes == kept


def test_what_is_written_between_two_looks_counts() -> None:
    room, told = Room(), []
    room.on_refused.append(lambda: told.append(1))
    room.looked(space(20 * MIB), Reserve(10 * MIB, 0))
    room.take(10 * MIB)
    room.check()
    room.take(1)
    with pytest.raises(StorageFull, match=r"10,485,759 bytes are left.*disk\.min\.free\.bytes"):
        room.check()
    room.take(1)
    assert told == [1]


def test_producers_come_again_only_with_a_quarter_more_than_what_stopped_them() -> None:
    room = Room()
    room.looked(space(9 * MIB), Reserve(10 * MIB, 0))
    assert room.refusal
    room.looked(space(12 * MIB), Reserve(10 * MIB, 0))
    assert room.refusal
    room.looked(space(13 * MIB), Reserve(10 * MIB, 0))
    assert not room.refusal
    room.looked(space(11 * MIB), Reserve(10 * MIB, 0))
    assert not room.refusal


def test_inodes_run_out_too_but_not_where_there_is_no_number_of_them() -> None:
    room = Room()
    room.looked(space(900 * MIB, free_inodes=99), Reserve(10 * MIB, 100))
    assert "99 inodes are left" in room.refusal
    room.looked(space(900 * MIB, inodes=0, free_inodes=0), Reserve(10 * MIB, 100))
    assert not room.refusal


def test_what_can_wait_is_not_written_into_the_last_half_of_the_reserve() -> None:
    room = Room()
    room.looked(space(12 * MIB), Reserve(10 * MIB, 0))
    assert room.has(7 * MIB)
    assert not room.has(7 * MIB + 1)


def test_nothing_is_refused_where_nothing_is_kept() -> None:
    room = Room()
    room.looked(space(0), Reserve(0, 0))
    room.take(1 << 40)
    room.check()
    assert room.has(1 << 40)
