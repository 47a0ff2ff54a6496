"""What a login by SCRAM works out takes milliseconds: on an event loop that is a thread's."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar.auth.scram import MECHANISMS, ScramExchange, ScramRefused, of_password
from magnetar.client.async_connection import AsyncConnection
from magnetar.client.conversation import Conversation
from magnetar.client.errors import BrokerRefused, BrokerUnreachable
from magnetar.client.forwarding import ForwardingConnection
from magnetar.client.security import ClientSecurity, LoginFailed
from magnetar.client.settings import ClientSettings
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.client.scripted import ScriptedBroker
from tests.client.test_conversation import SERVED, echo, fetch, give, records

BOTH = sorted(MECHANISMS)
MINE, WRONG = "secret", "guess"
SHORT_MS = 100


class ScramBroker(ScriptedBroker):
    """Knows one user, and lets it in for a time."""

    def __init__(self, mechanism: str, *, lies: bool = False, session_ms: int = 0) -> None:
        super().__init__(SERVED, self._say)
        self.logins = 0
        self._mechanism = MECHANISMS[mechanism]
        self._kept = of_password(self._mechanism, MINE)
        self._lies = lies
        self._session_ms = session_ms
        self._exchange: ScramExchange | None = None

    def _say(self, request: Message, version: int) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            self._exchange = None
            return SaslHandshakeResponse(mechanisms=[self._mechanism.name])
        if not isinstance(request, SaslAuthenticateRequest):
            return echo(request, version)
        said = bytes(request.auth_bytes)
        try:
            if self._exchange is None:
                self._exchange = ScramExchange(self._mechanism, lambda *_: self._kept)
                return SaslAuthenticateResponse(auth_bytes=self._exchange.first(said))
            told = self._exchange.final(said)
        except ScramRefused as error:
            return SaslAuthenticateResponse(error_code=58, error_message=str(error))
        self.logins += 1
        return SaslAuthenticateResponse(
            auth_bytes=b"v=AAAA" if self._lies else told, session_lifetime_ms=self._session_ms
        )


def security(mechanism: str, password: str = MINE) -> ClientSecurity:
    return ClientSecurity(mechanism=mechanism, username="me", password=password)


def log_in(conversation: Conversation, broker: ScramBroker, written: bytes) -> int:
    """Go on until the broker knows who it is; return how often there was something to work out."""
    worked = 0
    while written or conversation.work:
        if conversation.work is not None:
            assert not written, "nothing is said before that is worked out"
            worked += 1
            written = conversation.worked(conversation.work())
        else:
            written = give(conversation, broker.hears(written), 7)
    return worked


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("apart", [False, True])
def test_the_owner_may_work_apart_at_the_beginning_and_again(mechanism: str, apart: bool) -> None:
    broker = ScramBroker(mechanism)
    conversation = Conversation("there:9092", client_id="me", security=security(mechanism), works_apart=apart)
    assert log_in(conversation, broker, conversation.open()) == apart
    assert conversation.ready
    assert log_in(conversation, broker, conversation.log_in_again(security(mechanism))) == apart
    assert not conversation.is_logging_in
    assert broker.logins == 2
    give(conversation, broker.hears(b"".join(conversation.send(fetch(3)))))
    assert records(conversation.answers.popleft()) == b"\3\3\3"


class Threads:
    """Those in which passwords are salted; ``gate`` may hold them up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self._salt = hashlib.pbkdf2_hmac
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", self._noted)

    def _noted(self, *given: Any) -> bytes:
        self.seen.append(threading.get_ident())
        self.gate.wait()
        return self._salt(*given)

    def check(self, times: int) -> None:
        """See that it was so often, and nobody waited for it."""
        assert len(self.seen) == times
        assert threading.get_ident() not in self.seen


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


@asynccontextmanager
async def serving(broker: ScramBroker) -> AsyncIterator[tuple[int, list[asyncio.StreamWriter]]]:
    """Serve it; give the port, and the connections that there are."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while data := await reader.read(1 << 16):
            writer.write(broker.hears(data))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], writers
    server.close()


def settings(mechanism: str, password: str = MINE) -> ClientSettings:
    return ClientSettings((("127.0.0.1", 1),), security=security(mechanism, password))


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("kind", [AsyncConnection, ForwardingConnection])
async def test_connections_on_a_loop_salt_passwords_in_threads(
    threads: Threads, kind: type[AsyncConnection], mechanism: str
) -> None:
    broker = ScramBroker(mechanism)
    threads.seen.clear()  # the broker has salted its own
    async with serving(broker) as (port, _):
        made = await kind.connect("127.0.0.1", port, settings(mechanism))
        assert records(await made.call(fetch(5))) == bytes([5]) * 5
        made.close()
        threads.check(1)
        with pytest.raises(BrokerRefused, match="wrong password"):
            await kind.connect("127.0.0.1", port, settings(mechanism, WRONG))
        threads.check(2)


async def test_who_proves_again_who_it_is_does_so_in_a_thread(threads: Threads) -> None:
    broker = ScramBroker(BOTH[0], session_ms=SHORT_MS)
    threads.seen.clear()

    async def prove() -> ClientSecurity:
        return security(BOTH[0])

    async with serving(broker) as (port, _):
        made = await ForwardingConnection.connect("127.0.0.1", port, settings(BOTH[0]))
        assert isinstance(made, ForwardingConnection)
        made.keep_logged_in(made.session_ms, prove)
        await asyncio.sleep(SHORT_MS / 1000)
        answers = await asyncio.gather(*(made.call(fetch(number)) for number in range(20)))
        assert [records(each) for each in answers] == [bytes([number]) * number for number in range(20)]
        made.close()
    assert broker.logins >= 2
    threads.check(broker.logins)


async def test_a_broker_that_proves_nothing_is_left(threads: Threads) -> None:
    async with serving(ScramBroker(BOTH[0], lies=True)) as (port, _):
        with pytest.raises(LoginFailed):
            await AsyncConnection.connect("127.0.0.1", port, settings(BOTH[0]))


async def test_a_broker_that_goes_while_a_password_is_salted(threads: Threads) -> None:
    broker = ScramBroker(BOTH[0])
    threads.seen.clear()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about))
    async with serving(broker) as (port, writers):
        threads.gate.clear()
        connecting = asyncio.ensure_future(AsyncConnection.connect("127.0.0.1", port, settings(BOTH[0])))
        while not threads.seen:  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.001)
        writers[0].close()
        with pytest.raises(BrokerUnreachable):
            await connecting
        threads.gate.set()
        await asyncio.get_running_loop().run_in_executor(None, threads.gate.wait)
        await asyncio.sleep(0.01)
    assert not failures
