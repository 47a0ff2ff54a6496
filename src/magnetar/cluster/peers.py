"""Requests between the workers of one data directory: each listens at a socket that only their user may use.

offset  size  field
     0     4  n, bytes of the name of the question (an answer: 0 if it was answered, 1 if it failed)
     4     8  m, bytes that follow
    12     n  the name (not in an answer)
  12+n     m  the question, or the answer; of a failure the reason, in words
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from magnetar.base.errors import BrokerError
from magnetar.base.unix_sockets import bind, short_path
from magnetar.metadata.modes import FOLDER_MODE

_HEAD = struct.Struct(">IQ")
_ANSWERED, _FAILED = 0, 1
_MAX_NAME_BYTES = 100
_PATIENCE_S = 30.0
_log = logging.getLogger("magnetar.broker")


class PeerFailed(BrokerError):
    """Another worker could not be reached, or could not answer."""


class Peers:
    """The other workers, by the numbers that clients see."""

    def __init__(self, root: Path, node_id: int) -> None:
        self.node_id = node_id
        """This worker's number."""
        self.answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        """By the name of a question. A ``BrokerError`` that one raises is reported to the other worker."""
        self._folder = root / "workers"
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen; a socket that a crash left behind is replaced."""
        self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        path = self._path(self.node_id)
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, sock=bind(path))

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._path(self.node_id).unlink(missing_ok=True)

    async def ask(self, node_id: int, name: str, what: bytes = b"") -> bytes:
        """Return the answer of another worker; raise `PeerFailed`."""
        # In a task of its own: Produce, which runs in none, asks, too.
        return await asyncio.ensure_future(self._ask(node_id, name, what))

    async def _ask(self, node_id: int, name: str, what: bytes) -> bytes:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                with short_path(self._path(node_id)) as path:
                    reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(_HEAD.pack(len(name), len(what)) + name.encode() + what)
                    await writer.drain()
                    outcome, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                    answer = await reader.readexactly(size)
                finally:
                    writer.close()
        except (OSError, asyncio.IncompleteReadError) as error:  # TimeoutError is one of them
            raise PeerFailed(f"worker {node_id} does not answer: {error or type(error).__name__}") from error
        if outcome != _ANSWERED:
            raise PeerFailed(answer.decode(errors="replace"))
        return answer

    def _path(self, node_id: int) -> Path:
        return self._folder / f"{node_id}.sock"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            length, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
            name = (await reader.readexactly(min(length, _MAX_NAME_BYTES))).decode()
            what = await reader.readexactly(size)
            outcome, answer = await self._answer(name, what)
            writer.write(_HEAD.pack(outcome, len(answer)) + answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other worker has gone
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, name: str, what: bytes) -> tuple[int, bytes]:
        try:
            return _ANSWERED, await self.answers[name](what)
        except KeyError:
            return _FAILED, f"this worker does not answer {name} yet".encode()
        except BrokerError as error:
            return _FAILED, str(error).encode()
        except Exception as error:
            _log.exception("another worker's question %s was not answered", name)
            return _FAILED, repr(error).encode()
