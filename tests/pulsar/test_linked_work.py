"""A Shared subscription's part in the work queue that a share group of its name works through: with real books."""

from __future__ import annotations

import pytest

from magnetar.coordination.shares.share_partition import SharePartition, Standing
from magnetar.coordination.transactions import Ack, TxnId
from magnetar.kafka.shares.lent import LentShare
from magnetar.ledger.port import ManagedLedger, Position
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.dispatch.linked import LinkedWork
from magnetar.pulsar.dispatch.pending_acks import PendingAcks
from magnetar.pulsar.dispatch.shared import Shared
from tests.pulsar.raw import entry
from tests.pulsar.test_dispatch import Ear, house, settle

TXN, OTHER = TxnId(0, 1), TxnId(0, 2)
BATCH = 3


class Linked:
    """A subscription, and the books of the group, which gets nothing unless a test gives it something."""

    def __init__(self, subscription: Shared, log: ManagedLedger, link: LinkedWork) -> None:
        self.subscription = subscription
        self.log = log
        self.link = link
        self.books = SharePartition(0)
        self.queue = LentShare(self.books, lambda: None)
        self.aside = PendingAcks("here")
        subscription.acks.in_transactions = self.aside
        subscription.link = link

    async def come_together(self) -> None:
        self.queue.begin(self.link)
        await self.link.join(self.queue)


async def linked(batches: int, *, ledger_entries: int = 50) -> tuple[Linked, Consumer, Ear]:
    """Return what has so many batches, all of which a consumer has, and which are not in the books yet."""
    home = await house("shared", ledger_entries=ledger_entries)
    assert isinstance(home.subscription, Shared)

    async def find() -> bool:
        return False

    link = LinkedWork(home.subscription, home.log, find, within_batches=True)
    made = Linked(home.subscription, home.log, link)
    for _ in range(batches):
        body = entry(b"x", num_messages_in_batch=BATCH)
        await home.log.append((body,), messages=BATCH, timestamp_ms=1).settled()
    consumer, ear = home.join(100)
    await settle()
    assert len(ear.heard) == batches
    return made, consumer, ear


def places(ear: Ear) -> list[Place]:
    return [place for place, _, _ in ear.heard]


@pytest.mark.parametrize(
    ("done", "entries"), [(0, 0), (2, 0), (3, 1), (4, 1), (6, 2), (11, 3), (12, 4)], ids=str
)
@pytest.mark.parametrize("ledger_entries", [2, 3, 50])
async def test_the_cursor_follows_the_books_as_far_as_they_are_done_with_whole_entries(
    done: int, entries: int, ledger_entries: int
) -> None:
    both, _, _ = await linked(4, ledger_entries=ledger_entries)
    await both.come_together()
    if done:
        both.books.accept(0, done - 1)
    assert both.subscription.backlog == 4
    await both.link.follow()
    assert both.subscription.backlog == 4 - entries
    assert await both.subscription.cursor.start_offset() == entries * BATCH
    await both.link.follow()
    assert both.subscription.backlog == 4 - entries, "once more changes nothing"
    both.subscription.close()


@pytest.mark.parametrize("entries", [0, 1, 4])
async def test_the_books_follow_the_cursor(entries: int) -> None:
    both, _, ear = await linked(4)
    await both.come_together()
    both.subscription.cursor.mark_delete(Position(places(ear)[0][0], entries - 1))
    assert both.books.start_offset == 0
    await both.link.follow()
    assert both.books.start_offset == entries * BATCH
    assert both.subscription.backlog == 4 - entries
    both.subscription.close()


async def test_the_cursor_follows_nothing_where_there_are_no_books_or_they_begin_before_the_log() -> None:
    both, _, _ = await linked(4)
    before = both.subscription.cursor.mark_delete_position
    await both.link.follow()
    await both.come_together()
    both.books.accept(0, BATCH - 1)
    await both.log.trim(2 * BATCH)
    await both.link.follow()
    assert both.subscription.cursor.mark_delete_position == before
    both.subscription.close()


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_early", [True, False])
async def test_what_an_open_transaction_acknowledged_no_member_of_the_group_gets(
    is_known: bool, is_early: bool
) -> None:
    """That holds for acknowledgements before the group comes and after, with the entry at a consumer or not."""
    both, consumer, ear = await linked(3)
    ack = Ack(*places(ear)[1], messages=BATCH)
    if not is_early:
        await both.come_together()
    if not is_known:
        both.subscription.remove(consumer)
        assert both.subscription.pending_of(ack[:2]) is None
    both.subscription.set_aside(consumer, TXN, [ack])
    if is_early:
        await both.come_together()
    await settle()
    held = [both.books.standing(first, first + BATCH - 1) for first in (0, 3, 6)]
    other = Standing.HELD if is_known else Standing.FREE
    assert held == [other, Standing.HELD, other]
    assert both.queue.records == (9 if is_known else 3)
    both.subscription.rewind()
    assert both.books.standing(3, 5) is Standing.HELD, "nor while consumers are sent all again"
    assert both.queue.records == 3
    both.subscription.close()


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("has_left", [True, False])
async def test_what_is_left_of_a_batch_is_free_once_its_transaction_has_ended_unless_a_consumer_has_it(
    is_committed: bool, has_left: bool
) -> None:
    both, consumer, ear = await linked(1)
    await both.come_together()
    ack = Ack(*places(ear)[0], messages=BATCH, remaining=0b100)
    both.subscription.set_aside(consumer, TXN, [ack])
    if has_left:
        both.subscription.remove(consumer)
    await settle()
    assert both.books.standing(0, 2) is Standing.HELD
    if is_committed:
        both.subscription.settle(TXN, [ack])
    else:
        await both.subscription.give_back(TXN, [ack])
    await settle()
    assert both.books.standing(0, 2) is (Standing.FREE if has_left else Standing.HELD)
    assert both.books.done_within(0, 2) == (0b011 if is_committed else 0)
    assert len(ear.heard) == (1 if has_left or is_committed else 2), "what was not committed comes again"
    assert bool(consumer.pending) is not has_left
    both.subscription.close()


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_batch_is_claimed_until_the_last_of_its_transactions_has_ended(is_committed: bool) -> None:
    both, consumer, ear = await linked(1)
    await both.come_together()
    first, second = (Ack(*places(ear)[0], messages=BATCH, remaining=left) for left in (0b110, 0b101))
    both.subscription.set_aside(consumer, TXN, [first])
    both.subscription.set_aside(consumer, OTHER, [second])
    both.subscription.remove(consumer)
    for txn, ack, standing in ((TXN, first, Standing.HELD), (OTHER, second, Standing.FREE)):
        if is_committed:
            both.subscription.settle(txn, [ack])
        else:
            await both.subscription.give_back(txn, [ack])
        await settle()
        assert both.books.standing(0, 2) is standing
    assert both.books.done_within(0, 2) == (0b011 if is_committed else 0)
    both.link.settled([first])
    both.link.given_back([second])
    assert both.books.standing(0, 2) is Standing.FREE, "what ended before changes nothing"
    both.subscription.close()
