"""What brokers of a cluster, or workers of one data directory, ask each other beyond what Kafka has words for.

Kafka's handler carries it, over the listeners by which brokers ask each other anything; whoever asks, and whoever
answers, knows only this. Questions and answers are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from magnetar.base.errors import BrokerError

T = TypeVar("T")
_MOST_BYTES = 2 << 20
"""Of a question. It is read at a stretch, and whoever may ask could say as much as any request has."""


class NotAnswered(BrokerError):
    """The broker that was asked has no part in what it was asked about."""


class BetweenBrokers:
    """One broker's."""

    def __init__(self, is_alone: Callable[[], bool]) -> None:
        self.way: Callable[[int, str, bytes], Awaitable[bytes]] | None = None
        """Brings a question about something to the broker of that number; raises ``BrokerError``. None where Kafka's
        handler does not run."""
        self._is_alone = is_alone
        self._answers: dict[str, Callable[[object], Awaitable[Any]]] = {}

    async def ask(self, node_id: int, about: str, asked: object) -> Any:
        """Return what a broker answers; raise ``BrokerError``: whether it was carried out is not known then."""
        if self.way is None:
            raise BrokerError(
                f"broker {node_id} cannot be asked: brokers ask each other over Kafka's listeners, and there are none"
            )
        answer = await self.way(node_id, about, json.dumps(asked).encode())
        if not answer:
            raise NotAnswered(
                f"broker {node_id} has nothing that answers what is asked about {about}: its settings or its version "
                "are others than here"
            )
        return json.loads(answer)

    def answer(self, about: str, read: Callable[[object], T], one: Callable[[T], Awaitable[Any]]) -> None:
        """Have others' questions about something answered; ``read`` raises ``ValueError`` for what it cannot be."""

        async def answer(asked: object) -> Any:
            try:
                what = read(asked)
            except ValueError:
                raise ConnectionAbortedError(f"what is asked about {about} cannot be read") from None
            return await one(what)

        self._answers[about] = answer

    async def answered(self, about: str, asked: bytes) -> bytes:
        """Return the answer to another broker's question; nothing where this one has no part in what it is about.

        Brokers of a cluster may have other settings, or another version, for as long as both are changed one by one.
        """
        if self._is_alone():
            raise ConnectionAbortedError("this broker is alone: no other one may ask it for anything")
        answer = self._answers.get(about)
        if answer is None:
            return b""
        try:
            if len(asked) > _MOST_BYTES:
                raise ValueError
            what = json.loads(asked)
        except (ValueError, RecursionError):
            raise ConnectionAbortedError(f"what is asked about {about} cannot be read") from None
        return json.dumps(await answer(what)).encode()
