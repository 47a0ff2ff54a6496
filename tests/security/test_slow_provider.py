"""An identity provider that hangs, or drips: nobody waits but those whose keys it has, and it is asked again."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from magnetar.auth import jwks
from magnetar.auth.jwks import KeySet, Pauses
from magnetar.auth.tokens import TokenInvalid, TokenVerifier
from magnetar.settings.security import SecuritySettings
from tests.security.signing import rsa_key, token
from tests.security.test_tokens import key_set
from tests.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


class Provider:
    """Answers each connection with ``first``, and then a byte now and then, or nothing, for good."""

    def __init__(self, first: bytes, drips: bool) -> None:
        self._first, self._drips = first, drips
        self.last = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}/jwks"
        self.came = 0
        self.goes_on = threading.Event()
        """Answers are given in full from then on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._server.accept()
            except OSError:
                return
            self.came += 1
            threading.Thread(target=self._answer, args=(came,), daemon=True).start()

    def _answer(self, came: socket.socket) -> None:
        try:
            came.recv(1 << 16)
            came.sendall(self._first)
            while self._drips and not self.goes_on.is_set():
                came.sendall(b" ")
                time.sleep(0.01)
            self.goes_on.wait()
            came.sendall(self.last)
        except OSError:
            pass
        came.close()

    def close(self) -> None:
        self.goes_on.set()
        self._server.close()


@pytest.fixture(
    params=[(b"", False), (b"HTTP/1.1 200 OK\r\nx: ", True), (HEAD, True)], ids=["hangs", "head", "body"]
)
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    made = Provider(*request.param)
    yield made
    made.close()


def test_an_answer_has_a_time_as_a_whole(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jwks, "DEADLINE_S", 0.5)
    keys = KeySet(provider.address, Pauses(3_600_000, 1, 1))
    asyncio.run(keys.wait())
    until(lambda: "the answer took too long" in caplog.text)
    until(lambda: bool(keys.candidates("x")) or provider.came >= 2)


async def test_strangers_key_ids_hold_no_threads_and_ask_once(provider: Provider) -> None:
    pool = ThreadPoolExecutor(1)
    held: list[Any] = []
    submit = pool.submit
    pool.submit = lambda *what, **more: held.append(what) or submit(*what, **more)  # type: ignore[method-assign]
    asyncio.get_running_loop().set_default_executor(pool)
    verifier = TokenVerifier(SecuritySettings(token_jwks=provider.address))
    before = threading.active_count()
    strangers = [token("alice", rsa_key(), "RS256", key_id=f"kid-{n}") for n in range(200)]
    waiting = [asyncio.ensure_future(verifier.prepare(each)) for each in strangers]
    await asyncio.sleep(0)
    await asyncio.to_thread(until, lambda: provider.came == 1)
    assert len(held) == 1, "that is the test's own"
    assert threading.active_count() <= before + 4
    assert not any(each.done() for each in waiting)
    provider.goes_on.set()
    await asyncio.gather(*waiting)
    for each in strangers:
        with pytest.raises(TokenInvalid):
            verifier.verify(each)
    assert provider.came <= 2


async def test_all_that_wait_for_a_key_have_it_once_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "DEADLINE_S", 3600.0)
    content = key_set(first=rsa_key())
    provider = Provider(b"", drips=False)
    try:
        verifier = TokenVerifier(SecuritySettings(token_jwks=provider.address))
        good = token("alice", rsa_key(), "RS256", key_id="first")
        waiting = [asyncio.ensure_future(verifier.prepare(good)) for _ in range(50)]
        await asyncio.to_thread(until, lambda: provider.came == 1)
        waiting.pop().cancel()  # which is not theirs
        provider.last = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content
        provider.goes_on.set()
        await asyncio.gather(*waiting)
        assert verifier.verify(good).role == "alice"
    finally:
        provider.close()
