"""Finds clients that have left or are silent among sockets that are not read because others hold the memory.

Such a socket reports nothing on its own, not even its end. Half a frame of a client that is gone would stay until its
turn to be read comes, and that turn waits for the memory that it holds. So they are polled: a frame whose rest is not
in the socket of a client that has gone never gets whole, and a client that has sent nothing for long while there was
no room for it would not go on if there was.
"""

from __future__ import annotations

import asyncio
import fcntl
import select
import struct
import termios
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from magnetar.serving.memory import Account, MemoryBudget

LOOK_S = 1.0
"""How often connections are checked,"""
LOOK_SHORT_S = 0.1
"""and how often while some wait for memory."""
STUCK_S = 30.0
"""How long a client may leave others without room by not sending the rest of a frame, or not taking its answers."""
DECRYPTED_BYTES = 512 << 10
"""The most that TLS has taken from the socket and not yet handed over."""
_COUNT = struct.Struct("i")


class Unread(NamedTuple):
    """The state of a socket that is not read."""

    descriptor: int
    has_left: bool
    """Whether the client has announced that nothing more comes."""
    is_reset: bool
    """Whether what the client had sent is gone as well."""
    nbytes: int
    """Bytes that have come and wait in the socket."""

    def ends_amid(self, missing_bytes: int, *, tls: bool) -> bool:
        """Return True if the client has gone within a frame that lacks so many bytes: it never gets whole."""
        comes = self.nbytes + (DECRYPTED_BYTES if tls else 0)
        return self.has_left and (self.is_reset or missing_bytes > comes)


def unread(descriptors: Iterable[int]) -> list[Unread]:
    """Return the sockets among these whose client has gone, or that have nothing to be read."""
    poll = select.poll()
    asked = list(descriptors)
    for descriptor in asked:
        poll.register(descriptor, select.POLLRDHUP | select.POLLIN)
    events = dict(poll.poll(0)) if asked else {}
    found = []
    for descriptor in asked:
        seen = events.get(descriptor, 0)
        is_reset = bool(seen & (select.POLLERR | select.POLLNVAL))
        has_left = is_reset or bool(seen & (select.POLLRDHUP | select.POLLHUP))
        if has_left or not seen & select.POLLIN:
            nbytes = 0 if is_reset else _pending(descriptor)
            found.append(Unread(descriptor, has_left, is_reset, nbytes))
    return found


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """Return a transport's socket's descriptor, -1 if it has none."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


def _pending(descriptor: int) -> int:
    return int(_COUNT.unpack(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(_COUNT.size)))[0])


class MemoryHolder(Protocol):
    """A connection that makes the process hold memory."""

    account: Account

    @property
    def unread_descriptor(self) -> int:
        """Its socket while that is open and not read, otherwise -1."""
        ...

    def left(self, socket: Unread) -> None:
        """Note that the client has gone while its socket was not read."""
        ...

    def is_stuck(self, since: float) -> bool:
        """True if it holds much, and has been waiting for its client since then."""
        ...

    def waits_since(self, since: float) -> bool:
        """True if it has been waiting for room since then, with requests that have come and were not begun.

        If all requests of a client are whole and under way, it is not the client that holds things up.
        """
        ...

    def give_up(self, why: str) -> None:
        """End the connection."""
        ...


class UnreadWatch:
    """Checks a server's unread connections now and then, and all connections once a second."""

    __slots__ = ("_connections", "_look_at_all", "_looks_at", "_memory", "_timer", "_waits")

    def __init__(
        self,
        memory: MemoryBudget,
        connections: Callable[[], Iterable[MemoryHolder]],
        look_at_all: Callable[[float], None] | None = None,
        *,
        waits: Callable[[], bool] | None = None,
    ) -> None:
        """``look_at_all``: called about once a second with the loop's time; without it stuck connections are ended.

        ``waits``: whether any connection waits for room, where the budget alone does not know.
        """
        self._memory = memory
        self._connections = connections
        self._look_at_all = look_at_all or self._end_those_stuck
        self._waits = waits or (lambda: memory.is_short)
        self._looks_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to check, on the running event loop."""
        self._wait()

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        interval_s = LOOK_SHORT_S if self._waits() else LOOK_S
        self._timer = asyncio.get_running_loop().call_later(interval_s, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        try:
            look_at_unread(self._memory, list(self._connections()), now)
            if now >= self._looks_at:
                self._looks_at = now + LOOK_S
                self._look_at_all(now)
        finally:
            self._wait()

    def _end_those_stuck(self, now: float) -> None:
        for each in list(self._connections()):
            end_if_stuck(self._memory, each, now)


def look_at_unread(memory: MemoryBudget, holders: Iterable[MemoryHolder], now: float) -> None:
    """Find clients that have left and, while others wait, end the silent ones; ``now`` is the loop's time."""
    of = {each.unread_descriptor: each for each in holders}
    of.pop(-1, None)
    for socket in unread(of):
        holder = of[socket.descriptor]
        if socket.has_left:
            holder.left(socket)
        elif memory.is_short and not socket.nbytes and holder.waits_since(now - STUCK_S):
            holder.give_up("others wait for the memory that it holds, and it sends nothing more")
    if memory.is_full:
        waiting = [each for each in of.values() if each.waits_since(now - STUCK_S)]
        if waiting:
            most = max(waiting, key=lambda each: each.account.held_bytes)
            most.give_up("clients hold more memory than there is, and it the most")


def end_if_stuck(memory: MemoryBudget, holder: MemoryHolder, now: float) -> bool:
    """End a connection whose client holds others up and does not go on; return whether it did."""
    if not memory.is_short or not holder.is_stuck(now - STUCK_S):
        return False
    holder.give_up("others wait for the memory that it holds, and it does not go on")
    return True
