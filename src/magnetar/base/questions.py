"""Questions to somebody who answers many at once: one message is on its way, and the next takes what came meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from magnetar.base.background import Background
from magnetar.base.errors import BrokerError

To = TypeVar("To", bound=Hashable)
What = TypeVar("What")
Answer = TypeVar("Answer")


class Questions(Generic[To, What, Answer]):
    """``send`` gets at most ``at_once`` of what was asked of one, in order, and returns as many answers."""

    def __init__(
        self,
        background: Background,
        name: str,
        send: Callable[[To, Sequence[What]], Awaitable[Sequence[Answer]]],
        at_once: int,
    ) -> None:
        """``name`` is what the work in the background is called."""
        self._background = background
        self._name = name
        self._send = send
        self._at_once = at_once
        self._waiting: dict[To, list[tuple[What, asyncio.Future[Answer]]]] = {}

    async def ask(self, to: To, what: What) -> Answer:
        """Return its answer; raise the ``BrokerError`` with which the whole message failed."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(to)
        if waiting is not None:
            waiting.append((what, answered))
        else:
            self._waiting[to] = [(what, answered)]
            self._background.once(self._name, self._send_all(to))
        return await answered

    async def _send_all(self, to: To) -> None:
        waiting = self._waiting[to]
        try:
            while waiting:
                now, waiting[:] = waiting[: self._at_once], waiting[self._at_once :]
                try:
                    answers = await self._send(to, [what for what, _ in now])
                    settled = list(zip(now, answers, strict=True))
                except BrokerError as error:
                    for _, answered in now:
                        if not answered.done():
                            answered.set_exception(error)
                except BaseException:
                    waiting += now
                    raise
                else:
                    for (_, answered), answer in settled:
                        if not answered.done():
                            answered.set_result(answer)
        finally:
            del self._waiting[to]
            for _, answered in waiting:  # this broker ends
                answered.cancel()
