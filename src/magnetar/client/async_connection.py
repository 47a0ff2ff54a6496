"""One connection to one broker for an event loop: the asyncio shell of `magnetar.client.conversation`.

For brokers that ask other brokers, and for whatever stands in front of them: many requests are on their way at once,
each with its own waiting caller.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from magnetar.client.conversation import Conversation
from magnetar.client.errors import BrokerUnreachable, ClientError, NoConnection

if TYPE_CHECKING:
    from magnetar.client.settings import ClientSettings
    from magnetar.wire.kafka.message import Message

_MAX_IN_FLIGHT = 100


class AsyncConnection(asyncio.BufferedProtocol):
    """Made by `connect`. `call` may be awaited by many at once; requests go out in the order of the calls."""

    def __init__(self, conversation: Conversation, settings: ClientSettings) -> None:
        self.place = conversation.place
        self._conversation = conversation
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._room = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._turn = asyncio.Lock()
        self._writable = asyncio.Event()
        self._writable.set()
        self._error: ClientError | None = None
        self._working: asyncio.Future[bytes] | None = None

    @classmethod
    async def connect(cls, host: str, port: int, settings: ClientSettings) -> AsyncConnection:
        """Return a connection over which the broker knows who we are. Raises ``ClientError``."""
        loop = asyncio.get_running_loop()
        security = settings.security
        conversation = Conversation(
            f"{host}:{port}", client_id=settings.client_id, security=security, works_apart=True
        )
        connection = cls(conversation, settings)
        try:
            # Certificates' files are read in a thread.
            context = await loop.run_in_executor(None, security.context) if security.tls else None
        except OSError as error:
            raise ClientError(f"no TLS with {connection.place}: {error}") from None
        try:
            async with asyncio.timeout(settings.request_timeout_s):
                await loop.create_connection(lambda: connection, host, port, ssl=context)
                await connection._opened
        except BaseException as error:
            connection.close()
            if isinstance(error, ssl.SSLError):
                raise ClientError(f"no TLS with {connection.place}: {error}") from None
            if isinstance(error, OSError):  # TimeoutError is one
                why = error.strerror or str(error) or "it takes too long"
                raise NoConnection(f"no broker answers at {connection.place}: {why}") from None
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether it is of no more use: another one must be made."""
        return self._error is not None

    async def call(
        self, request: Message, version: int | None = None, *, max_version: int | None = None
    ) -> Any:
        """Return the answer to a request, sent as `Conversation.send` has it.

        Raises `BrokerUnreachable` when the connection breaks, and when no answer came within ``request.timeout.ms``:
        nothing that comes later can be trusted to be in time, so that the connection is closed then, as Kafka's clients
        do. A caller that is cancelled loses its answer; those behind it get theirs.
        """
        async with self._room:
            async with self._turn:
                await self._until_ready()
                if self._error is not None:
                    raise self._error
                answer = self._send(request, version, max_version)
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    return await answer
            except TimeoutError:
                self._fail(BrokerUnreachable(f"{self.place} did not answer {type(request).__name__} in time"))
                assert self._error is not None
                raise self._error from None

    async def _until_ready(self) -> None:
        await self._writable.wait()

    def _send(self, request: Message, version: int | None, max_version: int | None) -> asyncio.Future[Any]:
        parts = self._conversation.send(request, version, max_version=max_version)
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(answer)
        assert self._transport is not None
        self._transport.writelines(parts)
        return answer

    def close(self) -> None:
        """Close it; who waits is told so."""
        self._fail(BrokerUnreachable(f"the connection to {self.place} was closed here"))

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._conversation.open())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._conversation.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            reply = self._conversation.buffer_updated(nbytes)
        except ClientError as error:
            self._fail(error)
            return
        if reply and self._transport is not None:
            self._transport.write(reply)
        self._work_apart()
        self._hand_over()

    def _work_apart(self) -> None:
        """Have done in a thread what a login waits for, if that is so. Nothing else is awaited meanwhile."""
        work = self._conversation.work
        if work is not None and self._working is None:
            self._working = self._loop.run_in_executor(None, work)
            self._working.add_done_callback(self._worked)

    def _worked(self, work: asyncio.Future[bytes]) -> None:
        self._working = None
        if self._error is not None or work.cancelled():
            return
        try:
            reply = self._conversation.worked(work.result())
        except ClientError as error:
            self._fail(error)
            return
        assert self._transport is not None
        self._transport.write(reply)

    def _hand_over(self) -> None:
        """Give the answers that have come to who waits for them."""
        if self._conversation.ready and not self._opened.done():
            self._opened.set_result(None)
        while self._conversation.answers:
            answer, waiting = self._conversation.answers.popleft(), self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(
            self._conversation.closed()
            if exc is None
            else BrokerUnreachable(f"the connection to {self.place} broke: {exc}")
        )

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _fail(self, error: ClientError) -> None:
        """End it: the first reason is told to all who wait, and to all who come."""
        if self._error is not None:
            return
        self._error = error
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        for waiting in (self._opened, *self._waiting):
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()  # nobody may be waiting for it any more
