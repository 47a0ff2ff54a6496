"""Requests between brokers of a cluster, or workers of one data directory, for which Kafka has no API.

Kafka's handler carries them, over the listeners that brokers use for all requests to each other; the two sides know
only this module. Questions and answers are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from magnetar.base.errors import BrokerError

T = TypeVar("T")
_MOST_BYTES = 2 << 20
"""The limit of a question. It is parsed at a stretch, and a client that may ask could send as much as any request."""


class NotAnswered(BrokerError):
    """The broker has no handler for the subject of the question."""


class BetweenBrokers:
    """One per broker: sends questions to others, and answers theirs."""

    def __init__(self, is_alone: Callable[[], bool]) -> None:
        self.way: Callable[[int, str, bytes], Awaitable[bytes]] | None = None
        """Sends a question about a subject to the broker of that number; raises ``BrokerError``. None where Kafka's
        handler does not run."""
        self._is_alone = is_alone
        self._answers: dict[str, Callable[[object], Awaitable[Any]]] = {}

    async def ask(self, node_id: int, about: str, asked: object) -> Any:
        """Return a broker's answer; raise ``BrokerError``: it is not known then if the request was carried out."""
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
        """Register the answer to questions about a subject; ``read`` raises ``ValueError`` for a malformed question."""

        async def answer(asked: object) -> Any:
            try:
                what = read(asked)
            except ValueError:
                raise ConnectionAbortedError(f"what is asked about {about} cannot be read") from None
            return await one(what)

        self._answers[about] = answer

    async def answered(self, about: str, asked: bytes) -> bytes:
        """Return the answer to another broker's question; nothing if this broker has no handler for its subject.

        Brokers of a cluster may have different settings, or versions, while these are changed one broker at a time.
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
