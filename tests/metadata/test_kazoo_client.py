"""Kazoo on TLS: answers that come in one record are each taken when they are there."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.certificates import Authority

pytest.importorskip("kazoo")

from magnetar.metadata.kazoo_client import _TlsHandler

ANSWERS = [b"%04d" % number for number in range(50)]
FOREVER_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Authority, int]]:
    """Serve one client, to whom all answers go in one record; what it says after them comes back."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server"))

    def serve(listener: socket.socket) -> None:
        client = context.wrap_socket(listener.accept()[0], server_side=True)
        with client:
            client.sendall(b"".join(ANSWERS))
            client.sendall(client.recv(100))
            client.recv(100)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield authority, listener.getsockname()[1]
        thread.join()


def test_answers_of_one_record_are_not_waited_for(server: tuple[Authority, int]) -> None:
    authority, port = server
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    handler = _TlsHandler(context)
    other, waker = socket.socketpair()
    with handler.create_connection(("127.0.0.1", port), FOREVER_S) as client, other, waker:
        # The first read has all of them come, kazoo's way: a piece at a time, and no more than asked for.
        found = [client.recv(4)]
        while len(found) < len(ANSWERS):
            readable, _, _ = handler.select([client, other], [], [], FOREVER_S)
            assert readable == [client], "it waited for the next answer, of which there is none"
            found.append(client.recv(4))
        assert found == ANSWERS
        assert handler.select([client, other], [], [], 0) == ([], [], [])
        waker.send(b"!")
        assert handler.select([client, other], [], [], FOREVER_S)[0] == [other]
        client.sendall(b"ping")
        while handler.select([client, other], [], [], FOREVER_S)[0] == [other]:
            pass
        assert client.recv(2) == b"pi"
        assert set(handler.select([client, other], [], [], FOREVER_S)[0]) == {client, other}
        client.sendall(b"end")
