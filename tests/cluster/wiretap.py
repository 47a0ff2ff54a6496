"""Relays in front of bookies that look at what a client sends: one question in plain that asks for TLS, then TLS alone.

A client that says anything else is hung up on at once, and what it said is kept: nobody waits for what never comes.
TLS records: 1 type (0x14 change of cipher, 0x15 alert, 0x16 handshake, 0x17 application data), 2 version, 2 length.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Self

_TYPES = {0x14, 0x15, 0x16, 0x17}
_HANDSHAKE, _APPLICATION = 0x16, 0x17
_START_TLS = bytes((0x08, 0x03, 0x10, 0x09))  # of BookKeeper's version 3: the version, and operation 9


class Wiretap:
    """Listens on a port for each bookie's. ``in_plain`` has what was said otherwise than by TLS."""

    def __init__(self, bookies: Sequence[int]) -> None:
        self.in_plain: list[bytes] = []
        self.handshakes = 0
        self.application_bytes = 0
        self._sockets: list[socket.socket] = []
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in bookies]
        self.ports = [each.getsockname()[1] for each in self._listeners]
        for listener, port in zip(self._listeners, bookies, strict=True):
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._listeners, *self._sockets):
            each.close()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                client, _ = listener.accept()
                bookie = socket.create_connection(("127.0.0.1", port))
            except OSError:
                return
            self._sockets += (client, bookie)
            threading.Thread(target=self._listen, args=(client, bookie), daemon=True).start()
            threading.Thread(target=_pass_on, args=(bookie, client), daemon=True).start()

    def _listen(self, client: socket.socket, bookie: socket.socket) -> None:
        try:
            stream = client.makefile("rb")
            head = stream.read(4)
            question = stream.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
            if _START_TLS not in question:
                if question:
                    self.in_plain.append(question)
                return
            bookie.sendall(head + question)
            while record := stream.read(5):
                kind, size = record[0], int.from_bytes(record[3:], "big")
                if kind not in _TYPES or record[1] != 3:
                    self.in_plain.append(record)
                    return
                body = stream.read(size)
                self.handshakes += kind == _HANDSHAKE and body[:1] == b"\x01"  # ClientHello
                self.application_bytes += size if kind == _APPLICATION else 0
                bookie.sendall(record + body)
        except OSError:
            return
        finally:
            for each in (client, bookie):
                with_end(each)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for each in (source, target):
            with_end(each)


def with_end(each: socket.socket) -> None:
    """Have both sides of a connection learn that it is over."""
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is
