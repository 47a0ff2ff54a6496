"""What brokers say to each other about Pulsar's transactions: many things in one message of JSON, each answered.

    asked     [what, ...]                               of one matter
    answered  [{"is": answer} or {"error": its name, "message": why}, ...]

To each broker one message about a matter is on its way at a time, and the next takes all that came meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from magnetar.base.background import Background
from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.questions import Questions
from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.coordination.transactions import (
    CoordinatorNotFound,
    CoordinatorNotReady,
    InvalidTxnStatus,
    TooManyTransactions,
    TransactionNotFound,
)
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.metadata import MetadataError
from magnetar.records.errors import RecordsError

T = TypeVar("T")
_MAX_AT_ONCE = 500
_ANSWER_WITHIN_S = 5.0
"""After which whoever asked is told to ask again: one topic that cannot be opened must not hold up what others wait
for. Less than the time in which brokers wait for each other."""


class NotDoneThere(BrokerError):
    """Another broker could not do it now; whoever wants it done asks again."""


_ANSWERS = (BrokerError, LedgerError, MetadataError, RecordsError)
_TOLD: dict[str, type[Exception]] = {
    each.__name__: each
    for each in (
        CoordinatorNotFound,
        CoordinatorNotReady,
        InvalidTxnStatus,
        LedgerTerminated,
        TooManyTransactions,
        TopicNotFound,
        TransactionNotFound,
    )
}
"""Errors that another broker's answer may be; any other is `NotDoneThere`."""


class Matter(StrEnum):
    """What is asked."""

    BEGIN = "transactions.begin"
    """Of who has a partition: that a transaction may write to it."""
    END = "transactions.end"
    """Of who has a partition: that a transaction is decided."""
    KEEP = "transactions.keep"
    """Of who has a partition: that what was acknowledged in it is durable."""
    ACKNOWLEDGE = "transactions.acknowledge"
    """Of a coordinator: that a transaction acknowledges something."""
    RESTORE = "transactions.restore"
    """Of a coordinator's broker: what open transactions have of a partition."""


class TransactionExchange:
    """One broker's part in it."""

    def __init__(self, between: BetweenBrokers, background: Background) -> None:
        self._between = between
        self._background = background
        self._asked = Questions(background, "asking about transactions", self._ask, _MAX_AT_ONCE)

    async def ask(self, node_id: int, matter: Matter, what: Any) -> Any:
        """Return a broker's answer; raise ``BrokerError``, also if it cannot be asked."""
        answer = await self._asked.ask((node_id, matter), what)
        if "error" not in answer:
            return answer["is"]
        kind = _TOLD.get(answer["error"], NotDoneThere)
        error = kind.__new__(kind)  # each is made of other things; it is its words that count
        error.args = (answer["message"],)
        raise error

    async def _ask(self, whom: tuple[int, Matter], whats: Sequence[Any]) -> list[dict[str, Any]]:
        node_id, matter = whom
        answers: list[dict[str, Any]] = await self._between.ask(node_id, matter, list(whats))
        return answers

    def answer(
        self, matter: Matter, read: Callable[[object], T], one: Callable[[T], Coroutine[Any, Any, Any]]
    ) -> None:
        """Have others' questions about a matter answered, each by itself; ``read`` raises ``ValueError`` for none."""

        def whats(asked: object) -> list[T]:
            if not isinstance(asked, list) or len(asked) > _MAX_AT_ONCE:
                raise ValueError
            return [read(each) for each in asked]

        async def answers(asked: list[T]) -> list[dict[str, Any]]:
            return await asyncio.gather(*(self._answered(one, each) for each in asked))

        self._between.answer(matter, whats, answers)

    async def _answered(self, one: Callable[[T], Coroutine[Any, Any, Any]], what: T) -> dict[str, Any]:
        # Not given up after that time: what it waits for may be others' as well, and it is of use when it comes.
        work = self._background.once("answering about transactions", one(what), answers=_ANSWERS)
        done, _ = await asyncio.wait([work], timeout=_ANSWER_WITHIN_S)
        if not done:
            return {"error": "NotDoneThere", "message": "it takes too long"}
        try:
            return {"is": work.result()}
        except _ANSWERS as error:
            return {"error": type(error).__name__, "message": str(error)}
