"""A batch is taken for well-formed because it looks like one before only if it is, whichever of its bytes differ."""

from __future__ import annotations

from random import Random

import pytest

from magnetar.records import check
from magnetar.records.batch import PlainRecord
from magnetar.records.check import check_records
from magnetar.records.layouts import MAX_LAYOUTS, Layouts
from tests.records.test_check import accepted, body_of, naive


@pytest.fixture(autouse=True)
def layouts(monkeypatch: pytest.MonkeyPatch) -> Layouts:
    """Those of this test alone, and no machine code that would come first."""
    made = Layouts()
    monkeypatch.setattr(check, "layouts", made)
    monkeypatch.setattr(check, "machine", check.Machine())
    return made


def alike(count: int, key: int | None, value: int | None, random: Random) -> bytes:
    """Return the records of a batch whose keys and values are so long."""
    return body_of(
        [
            PlainRecord(
                None if key is None else random.randbytes(key),
                None if value is None else random.randbytes(value),
                [],
                1_700_000_000_000 + min(number, 60),
                0,
            )
            for number in range(count)
        ]
    )


SHAPES = [(None, 5), (1, 3), (70, None), (None, 70), (0, 0), (3, 64)]


@pytest.mark.parametrize(("key", "value"), SHAPES)
@pytest.mark.parametrize("count", [5, 63, 64, 69, 200])
def test_one_is_learned_when_it_is_met_again(
    layouts: Layouts, count: int, key: int | None, value: int | None
) -> None:
    random = Random(count)
    for _ in range(2):
        body = alike(count, key, value, random)
        assert not layouts.fit(body, count)
        assert check_records(memoryview(body), count) == 0
    assert layouts.fit(alike(count, key, value, random), count)


@pytest.mark.parametrize(("key", "value"), SHAPES)
def test_whichever_byte_is_another_it_is_judged_as_if_nothing_were_known(
    layouts: Layouts, key: int | None, value: int | None
) -> None:
    random, count = Random(7), 69
    body = alike(count, key, value, random)
    for _ in range(2):
        check_records(memoryview(body), count)
    assert layouts.fit(body, count)
    for at in range(len(body)):
        changed = bytearray(body)
        for byte in random.sample((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, body[at] ^ 2, body[at] ^ 4), 3):
            changed[at] = byte
            assert accepted(bytes(changed), count) == naive(bytes(changed), count), (at, byte)


def test_another_of_as_many_bytes_and_records_is_judged_by_itself(layouts: Layouts) -> None:
    random = Random(3)
    for key, value in ((2, 9), (9, 2), (4, 7), (None, 11)):
        body = alike(80, key, value, random)
        for _ in range(3):
            assert check_records(memoryview(body), 80) == 0


def test_no_more_than_some_are_known(layouts: Layouts) -> None:
    random = Random(1)
    for count in range(5, 60):
        for _ in range(2):
            check_records(memoryview(alike(count, None, 5, random)), count)
    assert len(layouts._known) == MAX_LAYOUTS


def test_what_does_not_lie_in_runs_is_looked_at_each_time(layouts: Layouts) -> None:
    """Were only its runs known, what lies between them could be anything."""
    records = [PlainRecord(None, b"x" * (5 + (number % 9 == 8)), [], 0, 0) for number in range(60)]
    body = body_of(records)
    for _ in range(3):
        assert check_records(memoryview(body), 60) == 0
        assert not layouts.fit(body, 60)


def test_times_of_more_than_a_byte_are_looked_at_each_time(layouts: Layouts) -> None:
    records = [PlainRecord(None, b"x", [], 70 * (number > 0), 0) for number in range(60)]
    body = body_of(records)
    for _ in range(3):
        assert check_records(memoryview(body), 60) == 0
        assert not layouts.fit(body, 60)
