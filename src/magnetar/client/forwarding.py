"""One connection to one broker for who stands between it and its clients: requests and answers pass as they are.

It is `AsyncConnection` with four differences. Requests that others wrote are written as they came, and their answers
handed over as they come, to a function and not to a waiting task. All connections of a loop receive into one memory.
Who holds the answers is told how much they are, before they are whole, and may have reading stopped. And where a broker
lets in for a time only (KIP-368), it proves again who it is when it is next used towards the end of that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from magnetar.client.async_connection import AsyncConnection
from magnetar.client.conversation import MAX_BYTES, Conversation
from magnetar.client.errors import BrokerUnreachable, ClientError
from magnetar.records.framing import SizedFrames, scratch_buffer

if TYPE_CHECKING:
    from magnetar.client.security import ClientSecurity
    from magnetar.client.settings import ClientSettings
    from magnetar.wire.kafka.message import Message

#: Is given the answer as it came, or why there is none.
Told: TypeAlias = Callable[[memoryview | None, ClientError | None], None]
#: Gives what proves who we are, as it is now.
Prove: TypeAlias = "Callable[[], Awaitable[ClientSecurity]]"
_SESSION_PART = 0.85
"""So much of a session passes before it is renewed, as with Java's client at the earliest."""
_NEVER_S = float("inf")
_SMALL_BYTES = 8 << 10
_WRITE_HIGH_BYTES = 256 << 10
_SCRATCH = scratch_buffer()


class AnswerFrames(SizedFrames):
    """The frames that a broker sends."""

    unpack_size = Struct(">i").unpack_from
    least_bytes = 4
    big_bytes = 16 << 10
    __slots__ = ()

    def bad_size(self, size: int) -> BrokerUnreachable:
        return BrokerUnreachable(f"the broker does not speak Kafka's protocol: it announces {size} bytes")


class _Slot:
    """Stands where a waiting task's future would: for a function that is to be told."""

    __slots__ = ("deadline", "told")

    def __init__(self, told: Told, deadline: float) -> None:
        self.told: Told | None = told
        self.deadline = deadline

    def done(self) -> bool:
        return self.told is None

    def set_result(self, answer: memoryview) -> None:
        told, self.told = self.told, None
        if told is not None:
            told(answer, None)

    def set_exception(self, error: ClientError) -> None:
        told, self.told = self.told, None
        if told is not None:
            told(None, error)


class ForwardingConnection(AsyncConnection):
    """Made by `connect`. ``on_change`` is called when bytes came or went, and when it breaks."""

    def __init__(self, conversation: Conversation, settings: ClientSettings) -> None:
        super().__init__(conversation, settings)
        self._frames = AnswerFrames(MAX_BYTES, _SCRATCH)
        self._reads = True
        self._told_held = False
        self.on_change: Callable[[], None] = _nothing
        self.heard: Callable[[int], None] = _heard
        """Called with how many bytes came."""
        self.used_at = 0.0
        """When it was given back to who keeps it for others."""
        self._prove: Prove | None = None
        self._due_s = _NEVER_S
        """When it is to be proved again who we are."""
        self._proving: asyncio.Task[None] | None = None
        self._proved: asyncio.Future[None] | None = None
        """There while that is under way; requests wait in ``_held`` then."""
        self._held: list[tuple[memoryview, Told | None, float]] = []
        self._is_finishing = False

    @property
    def in_flight(self) -> int:
        """How many answers are still to come."""
        return len(self._waiting) + len(self._held)

    @property
    def session_ms(self) -> int:
        """How long the broker lets in who was proved at the beginning; 0 is for as long as it likes."""
        return self._conversation.session_ms

    def keep_logged_in(self, session_ms: int, prove: Prove) -> None:
        """Have it prove again who we are, by what ``prove`` gives then, when it is used late in a session."""
        self._prove = prove
        self._due_s = self._loop.time() + session_ms / 1000 * _SESSION_PART if session_ms else _NEVER_S

    @property
    def is_writable(self) -> bool:
        """Whether the broker takes what it is sent."""
        return self._writable.is_set()

    def version_of(self, request: type[Message]) -> int:
        """Return the newest version of an API that both sides know. Raises `ClientError`."""
        return self._conversation.version_of(request)

    @property
    def versions(self) -> Any:
        """The first and last version of each API that the broker serves."""
        return self._conversation.versions

    @property
    def held_bytes(self) -> int:
        """What has come and is not whole yet, and what the broker does not take."""
        if self._transport is None:
            return 0
        unsent = 0 if self._writable.is_set() else self._transport.get_write_buffer_size()
        return self._frames.held_bytes + unsent

    def forward(self, frame: memoryview, told: Told | None, *, within_s: float) -> None:
        """Send a request as it came; ``told`` gets the answer, maybe at once if there can be none, and always once.

        None sends a request that wants no answer.
        """
        if self._error is not None:
            if told is not None:
                told(None, self._error)
            return
        if self._loop.time() >= self._due_s:
            self._log_in_again()
        if self._proved is not None:
            self._held.append((frame, told, within_s))
        else:
            self._forward(frame, told, within_s)

    def tell(self, request: Message) -> None:
        """Send a request of our own whose answer nobody waits for, if the connection is there."""
        if self._error is None and self._proved is None and self._transport is not None:
            parts = self._conversation.send(request)
            self._waiting.append(cast("asyncio.Future[Any]", _Slot(_unheard, _NEVER_S)))
            self._transport.write(b"".join(parts))

    def _forward(self, frame: memoryview, told: Told | None, within_s: float) -> None:
        parts = self._conversation.forward(frame, is_answered=told is not None)
        if told is not None:
            self._waiting.append(cast("asyncio.Future[Any]", _Slot(told, self._loop.time() + within_s)))
        assert self._transport is not None
        if len(frame) <= _SMALL_BYTES:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    async def until_writable(self) -> None:
        """Wait until the broker takes what it is sent, or the connection has broken."""
        await self._writable.wait()

    def look(self, now: float) -> None:
        """Give the connection up if its broker has not answered in time."""
        if self._waiting:
            first = self._waiting[0]
            if isinstance(first, _Slot) and now > first.deadline:
                self._fail(BrokerUnreachable(f"{self.place} did not answer in time"))
        elif self._proved is not None:
            if self._due_s == _NEVER_S:
                self._due_s = now + self._settings.request_timeout_s
            elif now > self._due_s:
                self._fail(BrokerUnreachable(f"{self.place} did not let in again in time"))

    # Proving again who we are.

    def _log_in_again(self) -> None:
        if self._proved is None:
            self._due_s = _NEVER_S
            self._proved = self._loop.create_future()
            self._proving = asyncio.ensure_future(self._begin_again())

    async def _begin_again(self) -> None:
        assert self._prove is not None
        try:
            security = await self._prove()
            if self._error is None and self._transport is not None:
                self._transport.write(self._conversation.log_in_again(security))
        except ClientError as error:
            self._fail(error)

    @property
    def _has_proved(self) -> bool:
        """Whether what was begun is over: it begins once it is known what proves us."""
        assert self._proving is not None
        return self._proving.done() and not self._conversation.is_logging_in

    def _logged_in(self) -> None:
        """It is known again who we are: what waited is sent."""
        assert self._prove is not None
        self.keep_logged_in(self._conversation.session_ms, self._prove)
        held = self._end_of_wait()
        for frame, told, within_s in held:
            self._forward(frame, told, within_s)
        if self._is_finishing:
            self.finish()

    def _end_of_wait(self) -> list[tuple[memoryview, Told | None, float]]:
        proved, self._proved = self._proved, None
        held, self._held = self._held, []
        if proved is not None and not proved.done():
            proved.set_result(None)
        return held

    async def _until_ready(self) -> None:
        await super()._until_ready()
        if self._error is None and self._loop.time() >= self._due_s:
            self._log_in_again()
        while self._proved is not None:
            await asyncio.shield(self._proved)

    def read(self, wanted: bool) -> None:
        """Go on or stop reading."""
        if wanted is not self._reads and self._transport is not None and not self._transport.is_closing():
            self._reads = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def finish(self) -> None:
        """Send what was not sent yet, and close; nobody is told of answers any more."""
        self.on_change = _nothing
        for each in self._waiting:
            if isinstance(each, _Slot):
                each.told = None
        if self._held and self._error is None:
            self._is_finishing = True
            self._held = [(frame, told and _unheard, within_s) for frame, told, within_s in self._held]
            return
        if self._transport is not None and self._error is None:
            self.read(True)
            self._transport.close()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=_WRITE_HIGH_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        frames = self._frames
        frames.buffer_updated(nbytes)
        self.heard(nbytes)
        try:
            while (frame := frames.next_frame()) is not None:
                reply = self._conversation.receive(frame)
                if reply and self._transport is not None:
                    self._transport.write(reply)
                self._work_apart()
                self._hand_over()
                if self._proved is not None and self._has_proved:
                    self._logged_in()
        except ClientError as error:
            self._fail(error)
        # Of most answers nothing is left when they have been handed over, and nothing was before.
        held = frames.is_amid_frame
        if held or self._told_held:
            self._told_held = held
            self.on_change()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.on_change()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.on_change()

    def _fail(self, error: ClientError) -> None:
        super()._fail(error)
        self._frames.close()
        for _, told, _ in self._end_of_wait():
            if told is not None:
                told(None, error)
        self.on_change()


def _heard(nbytes: int) -> None:
    """Nobody wants to know."""


def _nothing() -> None:
    """Nobody wants to know."""


def _unheard(answer: memoryview | None, error: ClientError | None) -> None:
    """Nobody waits for this one."""


def answer_to(
    connection: ForwardingConnection, frame: memoryview, *, within_s: float
) -> asyncio.Future[memoryview]:
    """Send a request as it came; return what gets its answer, or the `ClientError` for which there is none."""
    answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

    def told(came: memoryview | None, error: ClientError | None) -> None:
        if answer.done():
            return
        if came is not None:
            answer.set_result(came)
        else:
            assert error is not None
            answer.set_exception(error)
            answer.exception()  # whether or not anybody comes for it

    connection.forward(frame, told, within_s=within_s)
    return answer
