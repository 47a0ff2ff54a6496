"""What brokers ask each other about Pulsar's transactions: what nobody of them would ask is refused before any work."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from magnetar.base.background import Background
from magnetar.cluster.between_brokers import BetweenBrokers, NotAnswered
from magnetar.coordination.transactions import Ack, TxnId, TxnPartition
from magnetar.pulsar.transactions.exchange import Matter, TransactionExchange
from magnetar.pulsar.transactions.participants import _asked, _begun
from magnetar.pulsar.transactions.rows import ack_of, ack_row, acks_of, partition_of, subscription_of, txn_of

DEEP = b"[" * 5_000_000


class Asked:
    def __init__(self, brokers: int = 2) -> None:
        self.done: list[Any] = []
        self.between = BetweenBrokers(lambda: brokers == 1)
        self.background = Background()
        self.exchange = TransactionExchange(self.between, self.background)
        self.exchange.answer(Matter.BEGIN, _begun, self.begin)

    async def begin(self, asked: Any) -> None:
        self.done.append(asked)

    async def ask(self, asked: bytes) -> Any:
        return json.loads(await self.between.answered(Matter.BEGIN, asked))


async def test_what_is_asked_is_done_each_by_itself() -> None:
    asked = Asked()
    rows = [[[number, 1], ["t", number]] for number in range(500)]
    assert await asked.ask(json.dumps(rows).encode()) == [{"is": None}] * 500
    assert asked.done == [(TxnId(number, 1), TxnPartition("t", number)) for number in range(500)]


@pytest.mark.parametrize(
    "hostile",
    [
        b"", b"5", b"{}", b"null", b'"x"', b"[null]", b"[[]]", b"[[1, 2]]", b"[[[1, 2]]]", b"\xff",
        DEEP, b"[" + b"9" * 5000,
        b'[[[1, 2], ["t", "0"]]]', b'[[[1, true], ["t", 0]]]', b'[[[1, 2], [["t"], 0]]]', b'[[[1, 2], ["t", 0], 3]]',
        json.dumps([[[1, 1], ["t", 0]]] * 501).encode(), b"[" + b"null," * 1_000_000 + b"null]",
    ],
    ids=lambda hostile: hostile[:30].decode(errors="replace"),
)  # fmt: skip
async def test_what_no_broker_asks_loses_the_connection_before_any_work(hostile: bytes) -> None:
    asked = Asked()
    before = len(asyncio.all_tasks())
    with pytest.raises(ConnectionAbortedError):
        await asked.ask(hostile)
    assert len(asyncio.all_tasks()) == before
    assert asked.done == []
    assert asked.background.failing() == {}


async def test_a_broker_that_is_alone_is_asked_by_nobody() -> None:
    with pytest.raises(ConnectionAbortedError, match="alone"):
        await Asked(brokers=1).ask(b"[]")


@pytest.mark.parametrize("messages", [None, 0, 1, 200_000])
def test_an_acknowledgement_comes_back_whatever_the_size_of_its_batch(messages: int | None) -> None:
    remaining = None if messages is None else (1 << messages) - 1
    ack = Ack(1, 2, remaining, 200_000, cumulative=True)
    assert ack_of(json.loads(json.dumps(ack_row(ack)))) == ack


@pytest.mark.parametrize(
    "row", [None, 1, {}, [], [1], ["1", "2"], [1, 2, 3, 4, 5], [1, 2, "0xzz", 4, False], [[1, 2]]]
)
@pytest.mark.parametrize("read", [ack_of, acks_of, txn_of, partition_of, subscription_of, _begun, _asked])
def test_rows_of_other_shapes_are_refused(row: object, read: Any) -> None:
    if row == [] and read is acks_of:
        assert read(row) == ()
        return
    with pytest.raises(ValueError):
        read(row)


async def test_a_broker_that_has_no_part_in_it_says_so_and_keeps_the_connection() -> None:
    """One of other settings, or of another version, amid a rolling change: whoever asks is told, and may ask again."""
    asking, asked = Asked(), Asked()

    async def way(node_id: int, about: str, what: bytes) -> bytes:
        return bytes(await asked.between.answered(about, what))

    asking.between.way = way
    with pytest.raises(NotAnswered, match="broker 7 has nothing that answers"):
        await asking.exchange.ask(7, Matter.RESTORE, ["t", 0])
    assert await asking.exchange.ask(7, Matter.BEGIN, [[1, 2], ["t", 0]]) is None
