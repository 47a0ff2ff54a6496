"""Damaged entries of a ledger on bookies hide no others: what is before and behind them is read by its offset."""

from __future__ import annotations

import pytest

from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.bookkeeper.tail import Tail
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.records.entry import broker_entry_head, kafka_message_head
from tests.ledger.entries import NOW_MS, batch

ENTRIES, EACH = 400, 3


def entry(number: int) -> bytes:
    head = broker_entry_head(NOW_MS, (number + 1) * EACH - 1) + kafka_message_head(NOW_MS, EACH)
    return head + batch(*(b"%d" % (number * EACH + at) for at in range(EACH)))


ROWS = [entry(number) for number in range(ENTRIES)]


def reader(damaged: range) -> BookieReader:
    async def ask(first: int, last: int) -> list[bytes]:
        if any(number in damaged for number in range(first, last + 1)):
            raise LedgerCorrupt(f"entries {first} to {last}")
        return ROWS[first : last + 1]

    return BookieReader(7, 0, ask, Tail(0), ENTRIES, sum(map(len, ROWS)))


# The first place that a search by halves looks at, others on its way, a run of some, the ends.
@pytest.mark.parametrize(
    "damaged", [range(200, 201), range(100, 104), range(195, 215), range(1), range(399, 400)]
)
@pytest.mark.parametrize("max_bytes", [1, 5_000, 1 << 20])
async def test_every_offset_of_a_whole_entry_is_read_and_no_other(damaged: range, max_bytes: int) -> None:
    for number in {*range(0, ENTRIES, 7), *range(95, 110), *range(190, 220), 0, 399}:
        fresh = reader(damaged)  # one that has learnt nothing of where what lies
        offset = number * EACH + 1
        if number in damaged:
            with pytest.raises(LedgerCorrupt):
                await fresh.read(offset, max_bytes=max_bytes, up_to=1 << 60)
            continue
        found = await fresh.read(offset, max_bytes=max_bytes, up_to=1 << 60)
        assert found[0].entry_id == number
        ids = [each.entry_id for each in found]
        assert ids == list(range(number, number + len(ids)))
        assert not set(ids) & set(damaged)
