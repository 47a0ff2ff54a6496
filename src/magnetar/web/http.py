"""HTTP on a process's own loop and listeners: uvicorn's protocol, one per connection, for any ASGI application.

Brokers and the proxy serve it alike. A connection here is one of the process's as any other: it counts in
``max.connections`` and ``max.connections.per.ip``, what it makes the process keep is charged to its account, and it is
let go when nothing comes of it any more:

    nothing asked                     connections.max.idle.ms, `KEEP_ALIVE_S` after an answer, `HEAD_S` without any
    a request's head has begun        `HEAD_S` until it is whole
    its body comes                    `BODY_S`, and a second more for each `MIN_BYTES_PER_S` that have come
    it waits for others' memory       `UNTAKEN_S`
    the answer is not taken           `UNTAKEN_S`
    the application is at work        never
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

    from magnetar.node.broker import Broker
    from magnetar.serving.connections import Connections
    from magnetar.serving.memory import Account, MemoryBudget
    from magnetar.settings.settings import Settings

MAX_BODY_BYTES = 8 << 20
MAX_REFUSED_BYTES = 64 << 20
"""Of a body that was refused: so much is read and forgotten, for many a client sends all before it listens."""
HEAD_S = 15.0
BODY_S = 30.0
MIN_BYTES_PER_S = 4 << 10
UNTAKEN_S = 60.0
KEEP_ALIVE_S = 75
_LONGEST_PHRASE = 400


@dataclass(frozen=True, slots=True)
class WebLimits:
    """What HTTP's connections share with all others of a process. ``known``: whoever comes is no stranger."""

    settings: Callable[[], Settings]
    memory: MemoryBudget
    connections: Connections
    known: bool


def limits_of(broker: Broker) -> WebLimits:
    """Return a broker's."""
    known = not broker.security.authentication.enabled
    return WebLimits(lambda: broker.settings, broker.serving.memory, broker.serving.connections, known)


class BodyTooLarge(Exception):
    """A request's body is larger than anything asked here has reason to be."""

    def __init__(self) -> None:
        super().__init__(f"the body is larger than {MAX_BODY_BYTES} bytes")


async def body_of(request: Request) -> bytes:
    """Return a request's body; raise ``BodyTooLarge``. Ask who it is, and whether it may, before.

    It waits for room where clients hold more than there may be. Raises starlette's ``ClientDisconnect``, too, which an
    application lets through: there is nobody left to answer.
    """
    if int(request.headers.get("content-length", "0")) > MAX_BODY_BYTES:
        raise BodyTooLarge
    held: Held | None = request.scope.get("state", {}).get("held")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLarge
        parts.append(part)
        if held is not None:
            await held.take(len(part))
    return b"".join(parts)


def say_with_status(scope: Scope, words: str) -> None:
    """Have the answer to a request say these words behind its status, for clients that show nothing else."""
    if (state := scope.get("state")) is not None:
        state["phrase"] = bytes(
            each if 0x20 <= each < 0x7F else 0x3F
            for each in words[:_LONGEST_PHRASE].encode("ascii", "replace")
        )


def is_known(scope: Scope) -> None:
    """Say that it is known who sent a request: its connection is no stranger's any more."""
    held: Held | None = scope.get("state", {}).get("held")
    if held is not None:
        held.account.login()


class Held:
    """What a connection makes the broker keep: of requests that still come, of bodies, of answers not taken."""

    def __init__(self, limits: WebLimits, resumed: Callable[[], None], buffered: Callable[[], int]) -> None:
        """``buffered`` gives how many bytes lie in the connection's own buffers."""
        self._room = asyncio.Event()
        self._resumed = resumed
        self._buffered = buffered
        self._body = 0
        self._rest = 0
        self.account: Account = limits.memory.account(self._resume, known=limits.known)

    def _resume(self) -> None:
        self._room.set()
        self._resumed()

    async def take(self, nbytes: int) -> None:
        """Count a part of a body that has been taken out of the buffers, and wait until more may come."""
        self._body += nbytes
        self.account.charge(nbytes)
        self.recount()
        while not self.account.may_take_more():
            self._room.clear()
            await self._room.wait()
        # The connection may have been refused room a moment ago. It waits no more, so nobody else would resume it.
        self._resumed()

    def let_go(self) -> None:
        """The request has been dealt with, and its body with it."""
        body, self._body = self._body, 0
        self.account.charge(-body)

    def recount(self) -> None:
        """Look into the buffers again."""
        kept, self._rest = self._rest, self._buffered()
        self.account.charge(self._rest - kept)

    def close(self) -> None:
        self.account.close()
        self._room.set()
