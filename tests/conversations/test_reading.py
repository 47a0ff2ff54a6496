"""Whatever becomes of its requests: a connection with bytes to read, and room for them, reads; and never too much."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.kafka import connection, login
from magnetar.kafka.clients import Clients
from magnetar.kafka.context import RequestContext
from magnetar.kafka.handlers import Route
from magnetar.kafka.listeners import parse_listeners
from magnetar.kafka.request_figures import Requests
from magnetar.kafka.server import KafkaServer, KafkaSocket
from magnetar.kafka.settings import KafkaSettings
from magnetar.ledger.errors import StorageFull
from magnetar.ledger.port import Gathered
from magnetar.records.framing import MAX_CUT
from magnetar.serving import reading
from magnetar.serving.memory import Account, MemoryBudget
from magnetar.serving.pace import SharedTurn
from magnetar.serving.reading import Reading, ReadingState
from magnetar.serving.unread import Unread
from magnetar.serving.wakeups import Wakeups
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.header import RequestHeader, encode_request_header

MAX_WAITING = 6
MAX_WAITING_BYTES = 100_000
MAX_FRAME = 300_000
LIMIT = 1 << 20
READ_BYTES = 4 << 10  # of the socket at a time
MIN_FRAME = 12  # it is by this that frames are estimated which are not cut yet
PRODUCE, FETCH, METADATA = 0, 1, 3


class Response:
    """An answer; each fills the socket a little."""

    __slots__ = ()

    def encode_parts(self, version: int) -> list[bytes]:
        return [bytes(40_000)]

    def encode(self, version: int) -> bytes:
        return bytes(40_000)


class Broker:
    """What requests end as, one letter each: they are answered when the test says so, or at once."""

    def __init__(self) -> None:
        self.pending: deque[asyncio.Future[None]] = deque()
        self.gathered: list[Gathered] | None = None
        self.refuses = False

    @contextmanager
    def gathering(self) -> Iterator[None]:
        assert self.gathered is None
        self.gathered = []
        yield
        gathered, self.gathered = self.gathered, None
        for each in gathered:
            each.settle(StorageFull("no room") if self.refuses else None)

    async def produce(self, kind: bytes, context: RequestContext) -> Response | None:
        if kind in b"Wo":  # it must wait before it has its place
            await self._later()
        context.placed = True
        if self.gathered is not None:
            self.gathered.append(Gathered())
            try:
                await self.gathered[-1]
            except StorageFull:
                if kind in b"nN":
                    raise ConnectionAbortedError("acks=0, and it was not stored") from None
        if kind in b"NAF":
            await self._later()
        if kind == b"F":
            raise ConnectionAbortedError("acks=0, and it failed")
        return None if kind in b"nNo" else Response()

    async def metadata(self, kind: bytes, context: RequestContext) -> Response:
        if kind.isupper():
            await self._later()
        return Response()

    async def fetch(self, kind: bytes, context: RequestContext) -> Response:
        if kind.isupper():  # it is parked until something comes
            await self._later()
        return Response()

    def answer_all(self) -> None:
        while self.pending:
            future = self.pending.popleft()
            if not future.done():
                future.set_result(None)

    async def _later(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self.pending.append(future)
        await future


class StubRoute:
    """One API of the stub: a request is one letter, and bytes that fill it."""

    versions = range(10)

    def __init__(self, api_key: int, handler: Callable[[bytes, Any], Coroutine[Any, Any, Any]]) -> None:
        self.api_key = api_key
        self.asks = api_key != PRODUCE
        self.is_eager = api_key in (PRODUCE, FETCH)
        self.changes = False
        self.handler = ""
        self._handler = handler

    def load(self) -> tuple[Any, Callable[[bytes, Any], Coroutine[Any, Any, Any]]]:
        return SimpleNamespace(decode=lambda body, version, **most: bytes(body[:1])), self._handler


class Socket:
    """Both ends of a socket: what was sent and not read, what was written and not taken."""

    def __init__(self, protocol: KafkaSocket) -> None:
        self.unread = bytearray()
        self.reads = True
        self.closed = False
        self.untaken = 0
        self.full = False
        self._high = 0
        self._protocol = protocol

    def pump(self) -> bool:
        """Have the connection read once, if it wants to; tell whether it did."""
        if not self.reads or not self.unread or self.closed:
            return False
        buffer = self._protocol.get_buffer(-1)
        count = min(len(buffer), len(self.unread), READ_BYTES)
        buffer[:count] = self.unread[:count]
        del self.unread[:count]
        buffer.release()
        self._protocol.buffer_updated(count)
        return True

    def take(self) -> None:
        self.untaken = 0
        if self.full:
            self.full = False
            self._protocol.resume_writing()

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, parts: Sequence[bytes]) -> None:
        self.untaken += sum(map(len, parts))
        if self.untaken > self._high and not self.full:
            self.full = True
            self._protocol.pause_writing()

    def close(self) -> None:
        self.closed = True

    abort = close


class AtOnce(ThreadPoolExecutor):
    """Threads that are none, so that nothing happens that a test does not see."""

    def submit(self, call: Any, /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args, **named))
        return done


class House:
    """One connection, everything around it, and somebody else who takes up room."""

    def __init__(self) -> None:
        self.engine = Broker()
        self.memory = MemoryBudget(LIMIT, LIMIT)
        config = Settings(KafkaSettings(queued_max_requests=MAX_WAITING))
        broker = SimpleNamespace(
            engine=self.engine,
            settings=config,
            serving=SimpleNamespace(
                memory=self.memory,
                idle_poll=SimpleNamespace(heard=lambda nbytes: None),
                connections=SimpleNamespace(came=lambda host: True, left=lambda host: None),
            ),
            security=SimpleNamespace(authentication=SimpleNamespace(enabled=False)),
        )
        sessions = SimpleNamespace(forget=lambda account: None)
        services = SimpleNamespace(
            partitions=SimpleNamespace(ahead=None),
            clients=Clients(),
            broker=broker,
            wakeups=Wakeups(),
            turn=SharedTurn(),
            tenancy=None,
            fetch_sessions=sessions,
            shares=SimpleNamespace(forget=lambda account: None, desert=lambda account: None),
            requests=Requests(),
            quotas=SimpleNamespace(enabled=False, connected=lambda host: 0),
        )
        self.server = KafkaServer(cast(Any, services), config)
        self.others = self.memory.account(lambda: None, known=True)
        self.connection = self.server.connection(parse_listeners(Settings())[0])
        self.socket = Socket(self.connection)
        self.is_lost = False
        self.connection.connection_made(cast(Any, self.socket))

    @property
    def waiting(self) -> int:
        frames = self.connection._frames
        return frames.waiting + self.connection.conversation.under_way

    async def settle(self) -> None:
        """Let everything happen that can."""
        quiet = 0
        while quiet < 8:
            quiet = 0 if self.socket.pump() else quiet + 1
            # What one read brings may be more than may wait, but no more is read then.
            assert self.waiting <= MAX_WAITING + READ_BYTES // MIN_FRAME + MAX_CUT + 1
            assert self.connection._frames.waiting_bytes <= MAX_WAITING_BYTES + MAX_FRAME + 2 * READ_BYTES
            await asyncio.sleep(0)

    def check(self) -> None:
        """Bytes are left unread only for a reason that ends with an event that will come."""
        if self.socket.closed or not self.socket.unread:
            return
        crowded = self.waiting > MAX_WAITING or self.connection._frames.waiting_bytes > MAX_WAITING_BYTES
        short = self.memory.held_bytes >= LIMIT / 2
        muted = self.connection.conversation._unmuting is not None
        assert crowded or short or muted, "bytes to read, and room for them, but nobody reads"
        if crowded and not short and not muted:
            assert self.engine.pending or self.socket.full, "nothing goes on, and nothing is waited for"

    async def do(self, step: tuple[str, Any]) -> None:
        what, how = step
        engine, others = self.engine, self.others
        match what:
            case "say":
                key, kind, size = how
                content = encode_request_header(RequestHeader(key, 0, 1, "x")) + kind + bytes(size)
                self.socket.unread += struct.pack(">i", len(content)) + content
            case "answer" if engine.pending:
                at = 0 if how % 2 else -1
                future = engine.pending[at]
                del engine.pending[at]
                if not future.done():
                    future.set_result(None)
            case "refuse":
                engine.refuses = how % 8 == 0
            case "take":
                self.socket.take()
            case "fill":
                others.charge(how)
            case "free":
                others.charge(-others.held_bytes)
            case "mute":
                self.connection.conversation.mute(how)
                muted = self.connection.conversation._unmuting is not None
                assert not (muted and self.socket.reads and not self.socket.closed)
            case "unmute":
                self.connection.conversation._unmute()
            case "leave":
                # What `left` has done in a turn of its own.
                self.connection._left(Unread(-1, True, False, len(self.socket.unread)))
                assert self.connection.conversation._unmuting is None, "nobody waits who has gone"
            case "lose" if not self.is_lost:
                self.is_lost = True
                self.socket.closed, self.socket.full = True, False
                self.connection.connection_lost(None)
        await self.settle()
        self.check()

    async def finish(self) -> None:
        """Everything that is waited for comes: then all is read, and nothing is kept."""
        self.others.close()
        self.engine.refuses = False
        self.connection.conversation._unmute()
        await self.settle()
        for _ in range(10_000):
            if not self.engine.pending and not self.socket.full:
                break
            self.engine.answer_all()
            self.socket.take()
            await self.settle()
            self.check()
        assert self.socket.closed or not self.socket.unread
        if not self.is_lost:
            self.connection.connection_lost(None)
        for _ in range(50):  # what has come whole is carried out
            self.engine.answer_all()
            await asyncio.sleep(0)
        assert self.connection.conversation.has_ended
        assert self.memory.held_bytes == 0


KINDS = st.one_of(
    st.tuples(st.just(PRODUCE), st.sampled_from([b"n", b"N", b"a", b"A", b"W", b"o"])),
    st.tuples(st.just(METADATA), st.sampled_from([b"m", b"M"])),
    st.tuples(st.just(FETCH), st.sampled_from([b"f", b"F", b"F"])),
    st.tuples(st.just(PRODUCE), st.sampled_from([b"n", b"n", b"N", b"o", b"F"])),
)
SAY = st.tuples(
    st.just("say"),
    st.tuples(KINDS, st.sampled_from([20, 20, 20, 3000, 40_000, 70_000, MAX_FRAME])).map(
        lambda each: (*each[0], each[1])
    ),
)
OTHER = st.tuples(
    st.sampled_from(["answer"] * 4 + ["refuse", "take", "fill", "free", "mute", "unmute", "leave", "lose"]),
    st.integers(1, LIMIT),
)


def house_of_stubs(broker: Broker) -> dict[int, Route]:
    routes = (
        StubRoute(PRODUCE, broker.produce),
        StubRoute(FETCH, broker.fetch),
        StubRoute(METADATA, broker.metadata),
    )
    return {route.api_key: cast(Route, route) for route in routes}


def run(steps: list[tuple[str, Any]]) -> None:
    async def play() -> None:
        asyncio.get_running_loop().set_default_executor(AtOnce())
        house = House()
        with (
            patch.object(connection, "ROUTE_BY_KEY", house_of_stubs(house.engine)),
            patch.object(reading, "MAX_WAITING_BYTES", MAX_WAITING_BYTES),
        ):
            for step in steps:
                await house.do(step)
            await house.finish()

    with asyncio.Runner() as runner:
        runner.run(play())


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(SAY, SAY, SAY, OTHER), max_size=40))
def test_a_connection_with_bytes_to_read_and_room_reads(steps: list[tuple[str, Any]]) -> None:
    run(steps)


def test_requests_that_want_no_answer_do_not_stop_it() -> None:
    """Nothing is ever sent, so nothing but their end can take up reading again."""
    say = [("say", (PRODUCE, kind, 20)) for kind in (b"N", b"o", b"n")] * 40
    run([*say, *[("answer", 1)] * 100, *say])


def test_large_requests_do_not_pile_up() -> None:
    """None of them may be begun before the first has its place; the rest stays in the socket."""
    run([("say", (PRODUCE, b"W", 70_000))] * 40 + [("answer", 0)] * 100)


def facts() -> Iterator[tuple[ReadingState, tuple[int, int], bool, ReadingState]]:
    most = reading.MAX_WAITING_BYTES
    for state in (ReadingState.READING, ReadingState.MUTED, ReadingState.CROWDED, ReadingState.SHORT):
        for crowd in ((3, 0), (1, most + 1), (3, most + 1)):
            yield state, crowd, True, ReadingState.CROWDED
            yield state, crowd, False, ReadingState.CROWDED
        yield state, (2, most), True, ReadingState.READING
        yield state, (2, most), False, ReadingState.SHORT
    yield ReadingState.ENDED, (0, 0), True, ReadingState.ENDED


def test_who_is_muted_is_not_read_whatever_else_is_so() -> None:
    for waiting in (0, 3):
        for room in (True, False):
            said: list[bool] = []
            one = Reading(2, lambda room=room: room, said.append)  # type: ignore[misc]
            one.mute(True)
            one.look(waiting)
            assert (one.state, said) == (ReadingState.MUTED, [False])
            one.mute(False)
            assert said == [False]
            one.look(waiting)
            assert (said == [False, True]) is (waiting == 0 and room)
    one.end()
    one.mute(True)
    assert one.state is ReadingState.ENDED


def test_the_table() -> None:
    for before, waiting, room, after in facts():
        said: list[bool] = []
        one = Reading(2, lambda room=room: room, said.append)  # type: ignore[misc]
        one.state = before
        one.look(*waiting)
        assert one.state is after
        changed = (before is ReadingState.READING) is not (
            after is ReadingState.READING
        ) and before is not ReadingState.ENDED
        assert said == ([after is ReadingState.READING] if changed else [])


@pytest.mark.parametrize("is_done", [False, True])
async def test_who_has_yet_to_log_in_has_a_strangers_part_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """A login may be over before it begins: by a certificate."""
    house = House()
    known: list[bool] = []
    account = house.memory.account

    def noted(
        resumed: Callable[[], None],
        *,
        known: bool,
        missing: Callable[[], int] | None = None,
        told: list[bool] = known,
    ) -> Account:
        told.append(known)
        return account(resumed, known=known, missing=missing)

    monkeypatch.setattr(house.memory, "account", noted)
    monkeypatch.setattr(KafkaServer, "asks_at", lambda self, listener: True)
    monkeypatch.setattr(login, "login_for", lambda *_: SimpleNamespace(is_done=is_done, access=None))
    stranger = house.server.connection(parse_listeners(Settings())[0])
    stranger.connection_made(cast(Any, Socket(stranger)))
    assert known == [is_done]
