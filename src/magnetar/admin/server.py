"""The admin socket, ``DATA/admin.sock``: the one place in ``admin`` that listens. Only its owner may connect."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.kafka.context import Services

SOCKET = "admin.sock"
MOST_BYTES = 64 << 10
_log = logging.getLogger("magnetar.admin")


class AdminServer:
    """Serves operators of this machine while the broker runs."""

    def __init__(self, data: Path, services: Services) -> None:
        self._path = data / SOCKET
        self._services = services
        self._server: asyncio.Server

    async def start(self) -> None:
        """Begin to listen; what a crash left behind makes way (the caller holds the directory's lock)."""
        self._path.unlink(missing_ok=True)
        bound = bind(self._path)
        self._server = await asyncio.start_unix_server(self._serve, sock=bound, limit=MOST_BYTES)

    async def close(self) -> None:
        """Stop listening, and take the socket away."""
        self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The first operator waits for what answers to be loaded, so that no start has to.
        await asyncio.to_thread(import_module, "magnetar.admin.live")
        from magnetar.admin.live import LiveBroker
        from magnetar.admin.questions import answer

        broker = LiveBroker(self._services)
        try:
            while line := await reader.readline():
                writer.write(await answer(line, broker))
                await writer.drain()
        except ValueError:
            _log.warning("an operator's question is longer than %d bytes; connection closed", MOST_BYTES)
        except ConnectionError:
            pass  # whoever asked has gone
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def bind(path: Path) -> socket.socket:
    """Give a socket bound to ``path`` for its owner alone; nobody can connect before somebody listens."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as name:
            bound.bind(name)
        os.chmod(path, 0o600)
    except BaseException:
        bound.close()
        raise
    return bound


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Give a name of ``path`` that fits a socket's address (108 bytes), however deep the directory lies."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
