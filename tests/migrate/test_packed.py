"""Packed offsets: packing is undone by unpacking, and every place lands on its record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.formats.packed import Landing, Packed, PackedLog, pack, unpack

LEDGERS = st.integers(0, 2**20 - 1)
ENTRIES = st.integers(0, 2**32 - 1)
INDEXES = st.integers(0, 2**12 - 1)


@given(LEDGERS, ENTRIES, INDEXES)
def test_unpack_undoes_pack(ledger: int, entry: int, index: int) -> None:
    packed = pack(ledger, entry, index)
    assert -(2**63) <= packed < 2**63
    assert unpack(packed) == (ledger, entry, index)


@given(st.tuples(LEDGERS, ENTRIES, INDEXES), st.tuples(LEDGERS, ENTRIES, INDEXES))
def test_order_is_kept_where_java_kept_it(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    half = 2**19  # from here on KoP's offsets were negative
    if max(one[0], other[0]) < half:
        assert (pack(*one) < pack(*other)) == (one < other)


def test_the_layout_is_kops() -> None:
    assert pack(5, 6, 7) == 5 * 2**44 + 6 * 2**12 + 7
    assert unpack(5 * 2**44 + 6 * 2**12 + 7) == Packed(5, 6, 7)
    assert pack(2**20 + 5, 6, 7) == pack(5, 6, 7)


@given(st.lists(st.lists(st.integers(1, 4096), max_size=8), min_size=1, max_size=6))
def test_each_record_lands_on_itself(ledgers: list[list[int]]) -> None:
    log, due = PackedLog(), 0
    places = []
    for ledger_id, entries in enumerate(ledgers):
        log.begin(ledger_id)
        for entry_id, messages in enumerate(entries):
            log.add(ledger_id, messages)
            for index in {0, messages // 2, messages - 1}:
                places.append((pack(ledger_id, entry_id, index), due + index))
            due += messages
            if messages < 4096:
                assert log.translate(pack(ledger_id, entry_id, messages))[0] == due
    for packed, offset in places:
        assert log.translate(packed) == (offset, Landing.record)


def test_an_entry_that_ran_into_the_next_never_skips() -> None:
    log = PackedLog()
    log.begin(1)
    log.add(1, 5000)
    log.add(1, 2000)
    assert log.translate(pack(1, 0) + 4999) == (4999, Landing.ambiguous)  # or record 903 of the second entry
    assert log.translate(pack(1, 1) + 1999) == (6999, Landing.record)
    assert log.translate(pack(1, 1, 904)) == (5000, Landing.ambiguous)


def test_gone_ledgers_lead_to_what_is_left() -> None:
    log = PackedLog()
    for ledger_id in (10, 20):
        log.begin(ledger_id)
        log.add(ledger_id, 3)
    assert log.translate(pack(4, 9, 1)) == (0, Landing.trimmed)
    assert log.translate(pack(15, 0)) == (3, Landing.trimmed)
    assert log.translate(pack(30, 0)) == (6, Landing.end)
    assert log.translate(pack(10, 0, 3)) == (3, Landing.next_entry)
    assert log.translate(pack(20, 0, 3)) == (6, Landing.end)


def test_ledgers_that_cannot_be_told_apart_are_refused() -> None:
    log = PackedLog()
    log.begin(7)
    with pytest.raises(ValueError, match="ledgers 7 and 1048583"):
        log.begin(7 + 2**20)
