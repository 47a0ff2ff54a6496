"""One session at ZooKeeper, on one client of kazoo's, for an event loop.

Kazoo runs threads. What it learns (answers, changes at watched nodes, connections that come and go) is put into one
queue in the order in which it was learnt, and the loop is woken once for all of it. Requests go to kazoo only while it
is connected, and few at a time: what it holds when its connection breaks may have been done or not, and nobody can
tell; what still waits here was not sent.

Three things are not kazoo's: watches that stay and tell of all nodes beneath theirs (ZooKeeper 3.6), errors of newer
servers, at which its thread would end, and a *lease*. Kazoo calls a session lost when a server says so, which it cannot
while none is reached; meanwhile the servers end the session, and others take what it kept. So a session is given up
here when nothing sent within `LEASE` of its time-out was answered: before the servers may give it up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any, Protocol

from kazoo.exceptions import (
    EXCEPTIONS,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    SessionExpiredError,
)
from kazoo.protocol.serialization import Exists, Watch, int_struct, write_string
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from magnetar.metadata.kazoo_client import SecuredClient, SecuredConnection
from magnetar.metadata.port import Session
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity

LEASE = 0.8
"""The part of the session's time-out for which an answer lets this client believe in its session."""
_BEATS = 5  # questions within a time-out, asked only for their answers
_IN_FLIGHT = (
    100  # kazoo wakes its thread by a byte for each request, and some 280 bytes would block whoever asks
)
_log = logging.getLogger(__name__)


class NewerError(KazooException):  # type: ignore[misc]
    """An error that kazoo does not know."""


class QuotaExceeded(NewerError):
    """An operator has limited what may lie beneath a node (``setquota``)."""


class NoWatcher(NewerError):
    """There is no such watch to remove."""


EXCEPTIONS[-125] = QuotaExceeded
EXCEPTIONS[-121] = NoWatcher
for _code in range(-127, -110):
    if _code not in EXCEPTIONS:
        EXCEPTIONS[_code] = NewerError


class AddWatch:
    """Have ZooKeeper tell of every change of a node and of all beneath it, until the connection breaks."""

    type = 106

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        """Return the request's bytes; 1 is for ``PERSISTENT_RECURSIVE``."""
        return bytes(write_string(self.path) + int_struct.pack(1))

    def deserialize(self, data: bytes, offset: int) -> bool:
        """Return that there was an answer."""
        return True


class RemoveWatch(AddWatch):
    """Have it tell no more; 3 is for watches of any kind."""

    type = 18

    def serialize(self) -> bytes:
        """Return the request's bytes."""
        return bytes(write_string(self.path) + int_struct.pack(3))


class SessionListener(Protocol):
    """Who is told what a session learns, on the event loop."""

    def connected(self) -> None:
        """Learn that a connection was made, the first or a later one: watches have to be asked for again."""

    def changed(self, path: str) -> None:
        """Learn that something changed at a watched path."""

    def lost(self, why: str) -> None:
        """Learn that the session has ended, or must be taken for ended; nothing more is told after that."""


class _Connection(SecuredConnection):
    """Kazoo's connection, which tells how long the servers keep the session, and of watches that stay."""

    client: _Client

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        began = time.monotonic()
        read_ms, connect_ms = super()._connect(host, hostip, port)
        # Kazoo spreads the time-out that was agreed upon over the hosts.
        agreed = connect_ms / 1000 * len(self.client.hosts)
        self.client.tell(partial(self.client.owner._connected, self.client.client_id[0], agreed, began))
        return read_ms, connect_ms

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        # A server that just starts takes connections that it never answers: better to try again than to wait for long.
        return super()._invoke(min(timeout, max(1.0, timeout / _BEATS)), request, xid)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        self.client.tell(partial(self.client.owner._changed, watch.path))


class _Client(SecuredClient):
    """Kazoo's client with that connection."""

    def __init__(
        self, owner: ZooKeeperSession, hosts: str, timeout: float, security: ZooKeeperSecurity
    ) -> None:
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0)
        self.owner = owner
        self.tell = owner._tell
        super().__init__(
            hosts, security, timeout=timeout, connection_retry=retry, logger=_log.getChild("kazoo")
        )
        self.logger.setLevel(logging.ERROR)
        self.add_listener(self._state_changed)

    def _make_connection(self) -> SecuredConnection:
        return _Connection(self, self._conn_retry.copy(), logger=self.logger, sasl_options=self.sasl_needed)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self.tell(self.owner._disconnected)
        elif state == KazooState.LOST:
            self.tell(partial(self.owner._lose, "ZooKeeper has ended the session"))


class _Answer:
    """What kazoo takes for its own kind of future."""

    __slots__ = ("_session", "future", "sent", "told")

    def __init__(self, session: ZooKeeperSession, future: asyncio.Future[Any]) -> None:
        self._session = session
        self.future = future
        self.sent = time.monotonic()
        self.told = False

    def set(self, value: object) -> None:
        self._session._tell(partial(self._session._answered, self, value, None))

    def set_exception(self, error: Exception) -> None:
        self._session._tell(partial(self._session._answered, self, None, error))


class ZooKeeperSession(Session):
    """A session from its first connection to its end; whoever wants another one makes a new object.

    ``id`` is 0 until it is connected. ``hosts`` are ``host:port``, separated by commas; ``timeout`` is in seconds, and
    the servers may agree upon another one. ``reached`` is whether an earlier session was here: how to come to the
    servers is known to be right then.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float,
        listener: SessionListener,
        security: ZooKeeperSecurity | None = None,
        *,
        reached: bool = False,
    ) -> None:
        super().__init__(0)
        self.connected = False
        self.reached = reached
        """Whether there was a connection, in this session or before it."""
        self.ended = ""
        """Why there is no session any more."""
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._hosts = hosts
        self._agreed = timeout
        self._believed_until = 0.0
        self.answered_at = 0.0
        """When the last answer came, by the monotonic clock; 0 if none has."""
        self._timers: list[asyncio.TimerHandle] = []
        self._waiting: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        """Requests that kazoo does not have."""
        self._in_flight = 0
        self._asked: deque[_Answer] = deque()
        """Requests that kazoo has, oldest first."""
        self._answer_s = 0.0
        self._lock = Lock()
        self._learnt: list[Callable[[], None]] = []
        """What the loop has still to be told, in the order in which it happened."""
        self._woken = False
        """Whether the loop is on its way to that."""
        self._client = _Client(self, hosts, timeout, security or ZooKeeperSecurity())

    @property
    def trouble(self) -> str:
        """What may be why there is no connection, empty if nothing is known."""
        return self._client.known_trouble if self.reached else self._client.trouble

    @property
    def answer_s(self) -> float:
        """The time that the last answer took or, if that is longer, that one is waited for; in seconds."""
        waits = time.monotonic() - self._asked[0].sent if self._asked else 0.0
        return max(self._answer_s, waits)

    def start(self) -> None:
        """Begin to connect, again and again until it is ended."""
        self._client.start_async()

    def ask(self, request: Any) -> asyncio.Future[Any]:
        """Send one of kazoo's requests, after those asked for before; the future has its answer, or kazoo's error.

        `ConnectionClosedError` says that it was not sent.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.ended:
            future.set_exception(ConnectionClosedError(self.ended))
        else:
            self._waiting.append((request, future))
            self._send()
        return future

    def withdraw(self, future: asyncio.Future[Any]) -> bool:
        """Take back what waits to be sent; tell whether that was still possible."""
        for each in self._waiting:
            if each[1] is future:
                self._waiting.remove(each)
                return True
        return False

    async def close(self) -> None:
        """End the session in order: the servers drop its nodes at once, if they can be reached."""
        self._end("the session was closed")
        await self._loop.run_in_executor(None, self._stop)

    def _send(self) -> None:
        while self._waiting and self.connected and self._in_flight < _IN_FLIGHT:
            request, future = self._waiting.popleft()
            if not future.done():
                self._in_flight += 1
                answer = _Answer(self, future)
                self._asked.append(answer)
                self._client._call(request, answer)

    # From here on what happens in kazoo's threads, and what the loop does about it.

    def _tell(self, what: Callable[[], None]) -> None:
        with self._lock:
            self._learnt.append(what)
            woken, self._woken = self._woken, True
        if not woken:
            with suppress(RuntimeError):  # the loop has ended, and with it who would listen
                self._loop.call_soon_threadsafe(self._learn)

    def _learn(self) -> None:
        with self._lock:
            learnt, self._learnt = self._learnt, []
            self._woken = False
        for what in learnt:
            what()
        self._send()

    def _connected(self, session_id: int, agreed: float, began: float) -> None:
        if not self.ended:
            self.id, self._agreed = session_id, agreed
            self.connected = self.reached = True
            self._heard(began)
            self._beat()
            self._listener.connected()

    def _disconnected(self) -> None:
        if self.connected:
            self.connected = False
            _log.warning("the connection to ZooKeeper at %s is lost; trying again", self._hosts)

    def _changed(self, path: str) -> None:
        if not self.ended:
            self._listener.changed(path)

    def _answered(self, answer: _Answer, value: object, error: Exception | None) -> None:
        if answer.told:
            return
        answer.told = True
        self._in_flight -= 1
        if answer in self._asked:
            self._asked.remove(answer)  # it is the first, as answers come in order
        self._answer_s = time.monotonic() - answer.sent
        if not isinstance(error, (ConnectionLoss, SessionExpiredError, ConnectionClosedError)):
            self.answered_at = time.monotonic()
            self._heard(answer.sent)
        if not answer.future.done():
            if error is None:
                answer.future.set_result(value)
            else:
                answer.future.set_exception(error)

    def _heard(self, sent: float) -> None:
        """Take note that the servers have heard of the session not before ``sent``."""
        self._believed_until = max(self._believed_until, sent + self._agreed * LEASE)

    def _beat(self) -> None:
        """Ask for nothing but an answer, and see how long the last one counts."""
        self._stop_timers()
        left = self._believed_until - time.monotonic()
        if left <= 0:
            self._lose(f"ZooKeeper has not answered for {self._agreed * LEASE:.1f} s")
            return
        if self.connected:
            self.ask(Exists("/", None)).add_done_callback(
                lambda asked: asked.cancelled() or asked.exception()
            )
        self._timers = [self._loop.call_later(min(self._agreed / _BEATS, left), self._beat)]

    def _lose(self, why: str) -> None:
        if not self.ended:
            self._end(why)
            self._listener.lost(why)
            Thread(target=self._stop, name="zookeeper-end", daemon=True).start()

    def _end(self, why: str) -> None:
        self.ended, self.connected = why, False
        self._stop_timers()
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(ConnectionClosedError(why))

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # its threads are daemons, and the servers end the session by themselves
            _log.info("a session at ZooKeeper did not end in order: %s", error)
