"""The answer of an identity provider to a GET, whole and in time: one that drips counts as one that hangs.

`urllib`'s timeout is that of each read: an answer of a byte now and then would never end, and block the next fetch.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from magnetar.base.errors import InvalidConfig

if TYPE_CHECKING:
    import http.client

DEADLINE_S = 10.0
"""For a whole fetch of a key set: name, connection, redirections, discovery and keys."""
_MAX_BYTES = 1 << 20


class _Sockets:
    """The connections of one fetch. At its end they are cut, wherever its thread is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.is_over = False

    def add(self, made: socket.socket) -> None:
        with self._lock:
            self._open.append(made)
        if self.is_over:
            self.cut()

    def cut(self) -> None:
        with self._lock:
            self.is_over = True
            for each in self._open:
                try:
                    socket.socket.shutdown(
                        each, socket.SHUT_RDWR
                    )  # TLS's own would pull it from under its reader
                except OSError:
                    pass  # it has ended


def got_within(location: str, until_s: float) -> bytes:
    """Return the body at an http address, read by ``until_s`` of the monotonic clock, 1 MB of it at most.

    Raises ``OSError``, ``ValueError``, ``HTTPException`` or `InvalidConfig`.
    """
    from http.client import HTTPException  # a megabyte, and few brokers have a provider

    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the answer took too long")
    sockets = _Sockets()
    clock = threading.Timer(left_s, sockets.cut)
    clock.daemon = True
    clock.start()
    try:
        with _opener(sockets).open(location, timeout=left_s) as answer:
            content: bytes = answer.read(_MAX_BYTES + 1)
    except (OSError, ValueError, HTTPException) as error:
        if sockets.is_over:
            raise TimeoutError("the answer took too long") from error
        raise
    finally:
        clock.cancel()
    if sockets.is_over:
        raise TimeoutError("the answer took too long")
    if len(content) > _MAX_BYTES:
        raise InvalidConfig(f"more than {_MAX_BYTES} bytes")
    return content


def _opener(sockets: _Sockets) -> Any:
    """Return an opener that works as ``urllib.request.urlopen`` does, and registers its connections."""
    import http.client  # this and the next are slow to load, and few brokers need them
    import urllib.request

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, req, context=ssl.create_default_context())

    return urllib.request.build_opener(PlainHandler, SecureHandler)
