"""One connection to one broker for who stands between it and its clients: requests and answers pass as they are.

It is `AsyncConnection` with three differences. Requests that others wrote are written as they came, and their answers
handed over as they come, to a function and not to a waiting task. All connections of a loop receive into one memory.
And who holds the answers is told how much they are, before they are whole, and may have reading stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from magnetar.client.async_connection import AsyncConnection
from magnetar.client.conversation import MAX_BYTES, Conversation
from magnetar.client.errors import BrokerUnreachable, ClientError
from magnetar.records.framing import SizedFrames, scratch_buffer

if TYPE_CHECKING:
    from magnetar.client.settings import ClientSettings
    from magnetar.wire.kafka.message import Message

#: Is given the answer as it came, or why there is none.
Told: TypeAlias = Callable[[memoryview | None, ClientError | None], None]
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

    @property
    def in_flight(self) -> int:
        """How many answers are still to come."""
        return len(self._waiting)

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
                self._hand_over()
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
        self.on_change()


def _heard(nbytes: int) -> None:
    """Nobody wants to know."""


def _nothing() -> None:
    """Nobody wants to know."""


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
