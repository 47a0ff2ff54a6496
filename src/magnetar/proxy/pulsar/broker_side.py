"""The socket to a broker that belongs to one of the proxy's Pulsar clients."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, cast

from magnetar.proxy.pulsar.handshake import SIZE_BYTES, BrokerPlace, is_lookup_response, told_through
from magnetar.wire.pulsar.frames import BadFrame

WRITE_HIGH_BYTES = 256 << 10
"""Of what either side does not take; beyond, the other one is not read."""
_LAST_WORDS_S = 5.0
"""For what is on its way to a client or a broker when its connection ends."""
_log = logging.getLogger("magnetar.proxy")


class PassingClient(Protocol):
    """The client's side."""

    def write(self, data: bytes | memoryview) -> None:
        """Send it what the broker says."""

    def answered_lookup(self, target: BrokerPlace | None) -> None:
        """The broker has answered a lookup, maybe by naming a broker."""

    def broker_takes(self, takes: bool) -> None:
        """The broker takes what it is sent, or does no longer."""

    def count(self) -> None:
        """Count the memory that both sides take."""

    def end(self) -> None:
        """The broker has gone."""


class BrokerSide(asyncio.Protocol):
    """The socket to a broker that belongs to one client.

    ``most_bytes`` is the largest frame where lookups are answered, None where bytes only pass.
    """

    def __init__(self, client: PassingClient, most_bytes: int | None) -> None:
        self._client = client
        self._most_bytes = most_bytes
        self._frames = bytearray()
        self.transport: asyncio.Transport | None = None

    @property
    def held_bytes(self) -> int:
        """What it has not taken, and what has come of it and is not whole."""
        unsent = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return unsent + len(self._frames)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        if self._most_bytes is None:
            self._client.write(data)
            return
        self._frames += data
        try:
            self._tell_of_lookups(self._most_bytes)
        except (BadFrame, ValueError) as error:
            _log.warning("what a broker says cannot be read: %s", error)
            self._client.end()

    def _tell_of_lookups(self, most_bytes: int) -> None:
        came, at = memoryview(bytes(self._frames)), 0
        passed: list[bytes | memoryview] = []
        while len(came) - at >= SIZE_BYTES:
            size = int.from_bytes(came[at : at + SIZE_BYTES], "big")
            if size > most_bytes:
                raise BadFrame(f"a frame of {size} bytes")
            end = at + SIZE_BYTES + size
            if end > len(came):
                break
            whole = came[at:end]
            if is_lookup_response(whole):
                told, target = told_through(whole)
                self._client.answered_lookup(target)
                passed.append(told)
            else:
                passed.append(whole)
            at = end
        if at:
            del self._frames[:at]
            self._client.write(b"".join(passed))
        elif len(self._frames) > WRITE_HIGH_BYTES:
            self._client.count()

    def read(self, wanted: bool) -> None:
        """Go on or stop reading the broker."""
        if self.transport is not None and not self.transport.is_closing():
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def pause_writing(self) -> None:
        self._client.broker_takes(False)

    def resume_writing(self) -> None:
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._client.broker_takes(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.end()

    def end(self) -> None:
        """Close it, once what was written has gone out."""
        if self.transport is not None:
            close_soon(self.transport)

    def abort(self) -> None:
        """Close it, and forget what has not gone out."""
        if self.transport is not None:
            self.transport.abort()


def close_soon(transport: asyncio.Transport) -> None:
    """Close a socket once what was written has gone out; one that takes nothing of it is not waited for any longer."""
    transport.close()
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(_LAST_WORDS_S, transport.abort)
