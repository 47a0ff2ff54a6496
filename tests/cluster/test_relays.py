"""What passes through a relay of the faults can be cut, held back and made late, and goes on afterwards."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.faults.relay import Relay, Relays


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that says what it is told."""

    def serve(taken: socket.socket) -> None:
        with taken:
            while said := taken.recv(1 << 16):
                taken.sendall(said)

    def accept() -> None:
        while True:
            try:
                taken, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(taken,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relays() -> Iterator[Relays]:
    made = Relays()
    yield made
    made.close()


def connected(relay: Relay) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", relay.port))
    made.settimeout(20)
    return made


def heard(client: socket.socket, said: bytes) -> bytes:
    client.sendall(said)
    got = b""
    while len(got) < len(said):
        if not (more := client.recv(1 << 16)):
            break
        got += more
    return got


def test_bytes_pass_and_what_is_cut_is_refused_until_it_is_mended(relays: Relays, echo: int) -> None:
    relay, other = relays.add(echo), relays.add(echo)
    with connected(relay) as client, connected(other) as elsewhere:
        said = bytes(range(256)) * 4000
        assert heard(client, said) == said
        assert heard(elsewhere, b"here") == b"here"
        relay.cut()
        with pytest.raises(OSError):
            while client.recv(1):
                pass
            raise OSError("ended")
        assert heard(elsewhere, b"still here") == b"still here"
    with connected(relay) as refused:
        assert refused.recv(1) == b""
    relay.mend()
    with connected(relay) as client:
        assert heard(client, b"again") == b"again"
        relay.break_all()
        with pytest.raises(OSError):
            while client.recv(1):
                pass
            raise OSError("ended")
    with connected(relay) as client:
        assert heard(client, b"and again") == b"and again"


def test_what_is_held_comes_when_it_is_mended(relays: Relays, echo: int) -> None:
    relay = relays.add(echo)
    with connected(relay) as client:
        assert heard(client, b"first") == b"first"
        relay.hold()
        client.sendall(b"later")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(20)
        relay.mend()
        assert client.recv(5) == b"later"
        relay.slow(0.2)
        began = time.monotonic()
        assert heard(client, b"slow") == b"slow"
        assert time.monotonic() - began >= 0.4, "either way"


def test_a_port_that_is_taken_is_told_of(relays: Relays, echo: int) -> None:
    with pytest.raises(OSError, match="in use"):
        relays.add(1, port=echo)


def test_they_are_a_process_of_their_own_whose_end_is_told(relays: Relays, echo: int) -> None:
    relay = relays.add(echo)
    assert relays._process.poll() is None
    with connected(relay) as client:
        assert heard(client, b"hello") == b"hello"
    relays.close()
    with pytest.raises(OSError):
        connected(relay)
    with pytest.raises((OSError, ValueError)):
        relay.mend()
