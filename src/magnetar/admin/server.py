"""The admin socket, ``DATA/admin.sock``: the one place in ``admin`` that listens. Only its owner may connect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.admin.address import SOCKET, bind

if TYPE_CHECKING:
    from magnetar.node.broker import Broker

MAX_BYTES = 64 << 10
_log = logging.getLogger("magnetar.admin")


class AdminServer:
    """Serves operators of this machine while the broker runs."""

    def __init__(self, data: Path, broker: Broker) -> None:
        self._path = data / SOCKET
        self._broker = broker
        self._server: asyncio.Server

    async def start(self) -> None:
        """Begin to listen; what a crash left behind makes way (the caller holds the directory's lock)."""
        if self._broker.cluster.questions is None:
            self._path.unlink(missing_ok=True)
            bound = bind(self._path)
        else:
            bound = socket.socket(fileno=os.dup(self._broker.cluster.questions))
        self._server = await asyncio.start_unix_server(self._serve, sock=bound, limit=MAX_BYTES)
        if self._broker.cluster.peers is not None:
            self._broker.cluster.peers.answers["operator"] = self._answer_other
            self._broker.cluster.peers.answers["partition-facts"] = self._partition_facts

    async def _answer_other(self, line: bytes) -> bytes:
        """Answer what an operator asked another worker."""
        await asyncio.to_thread(import_module, "magnetar.admin.live")
        from magnetar.admin.live import LiveBroker
        from magnetar.admin.questions import answer

        return await answer(line, LiveBroker(self._broker))

    async def _partition_facts(self, asked: bytes) -> bytes:
        """Tell another worker what it needs to say why a group waits."""
        await asyncio.to_thread(import_module, "magnetar.admin.live")
        from magnetar.admin.live import LiveBroker

        return await LiveBroker(self._broker).facts_for_others(asked)

    async def close(self) -> None:
        """Stop listening, and take the socket away."""
        self._server.close()
        if self._broker.cluster.questions is None:
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The first operator waits for what answers to be loaded, so that no start has to.
        await asyncio.to_thread(import_module, "magnetar.admin.live")
        from magnetar.admin.live import LiveBroker
        from magnetar.admin.questions import answer, note_order

        broker = LiveBroker(self._broker)
        peers = self._broker.cluster.peers
        try:
            while line := await _line(reader):
                if peers is None:
                    reply = await answer(line, broker)
                else:
                    from magnetar.admin.elsewhere import answered

                    reply = await answered(line, self._broker, peers, lambda asked: answer(asked, broker))
                note_order(line, reply, _operator(writer))
                writer.write(reply)
                await writer.drain()
        except ConnectionError:
            pass  # whoever asked has gone
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def _operator(writer: asyncio.StreamWriter) -> str:
    """Return user and process of the client, as the system has them."""
    own = writer.get_extra_info("socket")
    try:
        pid, uid, _ = struct.unpack("3i", own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except (OSError, AttributeError):  # not every system tells
        return "operator"
    return f"uid {uid}, process {pid}"


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; nothing at the end, or after one that nobody can mean."""
    try:
        return await reader.readline()
    except ValueError:
        _log.warning("an operator's question is longer than %d bytes; connection closed", MAX_BYTES)
        return b""
