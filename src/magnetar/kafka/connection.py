"""One client's requests in, answers out, in order. It never touches a socket: bytes come in, parts go out.

Produce requests may overlap, so that one flush serves many; any other request begins when all before it are
answered, as in Kafka. Whatever cannot be read ends the connection with one log line.

What a client sends at once is not all worked off at once: after some milliseconds others have their turn, and so it is
when its answers have become much. Once it has gone, only what changes something is still carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from magnetar.broker.auth import AuthenticationFailed
from magnetar.broker.collector import uncollected
from magnetar.broker.listeners import Listener
from magnetar.broker.memory import Account
from magnetar.kafka.authorization import guarded
from magnetar.kafka.context import RequestContext, Software
from magnetar.kafka.eager import Eager
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.handlers.api_versions import unsupported_version
from magnetar.kafka.login import AuthenticationRequired, Login
from magnetar.kafka.pace import LONG_SECONDS, MANY_ROWS, MOST_SECONDS, let_go
from magnetar.kafka.route import Route
from magnetar.kafka.services import Services
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.tenancy import Home
from magnetar.records.compression import Buffer
from magnetar.wire.kafka.frames import FrameReader
from magnetar.wire.kafka.header import (
    API_VERSIONS,
    RequestHeader,
    decode_request_header,
    encode_response_header,
)
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.primitives import MAX_REQUEST_ELEMENTS
from magnetar.wire.kafka.produce_rows import has_many_rows

PRODUCE = 0
FETCH = 1
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
MOST_OVERLAPPING = 64
MOST_READY_BYTES = 1 << 20
"""Of answers that go out together; then the client is to take them, before more is read for it."""
ROWS_COST = 12
"""So many times what its rows took on the wire a request takes while it is carried out; Produce has few of them."""
APART_BYTES = 64 << 10
"""Requests above that are read in a thread, but Produce, whose bytes are batches and not rows, unless it has many."""
_log = logging.getLogger("magnetar.kafka")


class Answer:
    """The place of one request in the order of answers; ``parts`` are there once it is answered."""

    __slots__ = ("begun", "context", "encoded", "header", "parts", "request", "size", "translate")

    def __init__(self, header: RequestHeader, size: int, context: RequestContext | None) -> None:
        self.header = header
        self.context = context
        self.size = size
        self.parts: Sequence[Buffer] | None = None
        self.encoded: bytes | None = None  # the response, where a thread wrote it down
        self.request: Any = None  # while it has many rows
        self.begun: Eager | asyncio.Task[None] | None = None
        self.translate: Callable[[Any], None] | None = None


class Conversation:
    """What goes on with one client. ``send`` takes an answer's parts; ``end`` closes the connection.

    ``account`` counts the requests in hand. ``went_on`` is called whenever requests may have been taken up or answered.
    """

    def __init__(
        self,
        services: Services,
        listener: Listener,
        peer: str,
        frames: FrameReader,
        send: Callable[[Sequence[Buffer]], None],
        end: Callable[[], None],
        account: Account,
        login: Login | None = None,
        went_on: Callable[[], None] | None = None,
    ) -> None:
        self.peer = peer
        self._login = login
        self._access = None if login is None else login.access
        self._home: Home | None = None
        self._services = services
        self._listener = listener
        self._frames = frames
        self._send = send
        self._end = end
        self._account = account
        self._hold = account.charge
        self._went_on = went_on
        self._answers: deque[Answer] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._gone = False  # the client hung up; what it had already asked for is still done
        self._lost = False  # and nothing more comes from it
        self._blocked = False  # a request of another kind waits behind Produce
        self._full = False
        self._short = False  # a request with many rows waits for room
        self._beginning = False
        self._catching_up = False
        self._ready: list[Buffer] = []  # answers, in parts, that go out together
        self._ready_bytes = 0
        self._yields_at = 0.0
        self._takes_long = True  # what was begun last time; of who has asked nothing yet nobody knows
        self._has_asked = True  # the same: for something else than batches to be kept
        self._asks_long = True  # the same of what was asked last
        self.client_id = ""
        self.software = Software()

    @property
    def under_way(self) -> int:
        """How many requests were taken up and are not answered yet."""
        return len(self._answers)

    @property
    def has_ended(self) -> bool:
        """Whether it takes up nothing more, and all that it had taken up was answered or given up."""
        return self._ended

    def go_on(self) -> None:
        """Take up whole requests as far as order and the client's appetite for answers allow."""
        if self._beginning:
            return
        if self._takes_long and self._services.turn.is_over:
            self._go_on_soon()
            return
        self._beginning = True
        self._short = False
        self._has_asked = False
        self._collect()
        began = perf_counter()
        self._yields_at = began + MOST_SECONDS
        wakeups = self._services.wakeups
        wakeups.begin()
        try:
            while self._begin_some():
                pass
        except (WireError, AuthenticationRequired) as error:
            self.refuse(str(error))
        finally:
            self._beginning = False
            wakeups.end()
        self._flush()
        # Batches take as long as they are long, and to put them off only lets more of them come meanwhile.
        self._takes_long = self._has_asked and perf_counter() - began > LONG_SECONDS
        if self._frames.waiting and self._may_begin():
            self._go_on_soon()  # it was its time, or its answers', that was up
        if self._went_on is not None:
            self._went_on()

    def _begin_some(self) -> bool:
        """Take up requests as long as what they append can be written together; tell whether more can begin now."""
        frames = self._frames
        with self._services.broker.engine.gathering():
            while self._may_begin():
                frame = frames.next_frame()
                if frame is None:
                    break
                self._begin(frame)
                if frames.waiting and (
                    perf_counter() > self._yields_at or self._ready_bytes > MOST_READY_BYTES
                ):
                    return False
        return frames.waiting > 0 and self._may_begin()

    def pause(self) -> None:
        """Begin nothing new: the client does not take its answers."""
        self._full = True

    def resume(self) -> None:
        self._full = False
        self.go_on()

    def leave(self) -> None:
        """Nobody listens any more, but bytes may still come. As in Kafka, whole requests that arrive are still carried
        out: a producer with acks=0 sends and closes. Only what merely asks is given up."""
        self._gone = True
        self._full = False
        for answer in self._answers:
            if answer.parts is None and answer.header.api_key == FETCH and answer.begun is not None:
                stop(answer.begun)
                self._hold(-answer.size)
                answer.size, answer.parts = 0, ()
        self._flush()
        self.go_on()

    def hang_up(self) -> None:
        """Nothing more comes, either: carry out what has come whole, and end."""
        self._lost = True
        self.leave()
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._lost and not self._answers and not self._frames.waiting:
            self.close()

    def _may_begin(self) -> bool:
        if self._ended or self._full or self._blocked or self._short:
            return False
        answers = self._answers
        if not answers:
            return True
        last = answers[-1].context
        return last is not None and last.placed and len(answers) < MOST_OVERLAPPING

    def _begin(self, frame: memoryview) -> None:
        login = self._login
        if login is not None and login.takes_raw:
            self._authenticate_raw(login, frame)
            return
        header, body = decode_request_header(frame)
        if login is not None:
            login.check(header.api_key)
        route = ROUTE_BY_KEY.get(header.api_key)
        if route is None or header.api_version not in route.versions:
            self._unsupported(header)
            return
        if self._answers and header.api_key != PRODUCE:
            self._later(frame)
            return
        if self._gone and route.asks:
            return
        size = len(frame)
        apart = size > APART_BYTES and (
            header.api_key != PRODUCE or has_many_rows(body, header.api_version, MANY_ROWS)
        )
        if apart and not self._account.may_take_more():
            self._frames.put_back(frame)
            self._short = True
            return
        self._start(route, header, body, size, apart=apart)

    def _later(self, frame: memoryview) -> None:
        """Another kind of request behind Produce: it waits in the queue until those are answered."""
        self._frames.put_back(frame)
        self._blocked = True

    def _start(
        self, route: Route, header: RequestHeader, body: memoryview, size: int, *, apart: bool
    ) -> None:
        client_id = header.client_id or ""
        self.client_id = client_id
        context = RequestContext(
            self._services,
            header.api_version,
            client_id,
            "/" + self.peer,
            self._listener,
            self._login,
            self._access,
            self.software,
            self._account,
        )
        rows = apart or header.api_key != PRODUCE
        self._has_asked = self._has_asked or rows
        answer = Answer(header, size * ROWS_COST if rows else size, context)
        self._answers.append(answer)
        self._hold(answer.size)
        request_class, _ = route.load()
        if not apart:  # and so it cannot have too many elements
            self._serve(answer, context, route, request_class.decode(body, header.api_version))
        else:
            decode = partial(
                request_class.decode, bytes(body), header.api_version, most_elements=MAX_REQUEST_ELEMENTS
            )
            answer.begun = self._task(self._serve_large(answer, context, route, decode))

    async def _serve_large(
        self, answer: Answer, context: RequestContext, route: Route, decode: Callable[[], Any]
    ) -> None:
        """Read a request in a thread, whose many rows would hold up everybody else."""
        try:
            with uncollected():
                request = await asyncio.get_running_loop().run_in_executor(None, self._inward, route, decode)
            if self._gone and route.asks:
                self._answered(answer, None, None)
            elif not self._ended:
                self._serve(answer, context, route, request, apart=True)
        except Exception as error:
            self._failed(answer.header, error)

    def _inward(self, route: Route, decode: Callable[[], Any]) -> Any:
        request = decode()
        if self._home is not None:
            self._home.inward(route.names, request)
        return request

    def _serve(
        self, answer: Answer, context: RequestContext, route: Route, request: Any, *, apart: bool = False
    ) -> None:
        _, handler = route.load()
        if self._home is not None and not apart:
            self._home.inward(route.names, request)
        if self._access is not None:
            handler = guarded(route, handler, self._access)
        if (home := self._home) is not None:
            answer.translate = lambda response: home.outward(route.names, response)
        coroutine = handler(request, context)
        if apart:
            answer.request = request
        if route.api_key in (PRODUCE, FETCH) and not apart:
            answer.begun = Eager(coroutine, lambda response, error: self._answered(answer, response, error))
        else:
            answer.begun = self._task(self._run(answer, coroutine, apart=apart))

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _authenticate_raw(self, login: Login, frame: memoryview) -> None:
        """After version 0 of SaslHandshake, what SASL says comes, and is answered, without header."""
        answer = Answer(RequestHeader(SASL_AUTHENTICATE, 0, 0, None), len(frame), None)
        self._answers.append(answer)
        self._hold(answer.size)
        answer.begun = self._task(self._run_raw(login, answer, bytes(frame)))

    async def _run_raw(self, login: Login, answer: Answer, said: bytes) -> None:
        try:
            await login.authenticate(said, self.peer)
        except AuthenticationFailed as error:
            self.refuse(str(error))
        else:
            answer.parts = (b"",)
            self._logged_in(login)
            self._hold(-answer.size)
            answer.size = 0
            self.go_on()

    def _logged_in(self, login: Login) -> None:
        self._access, self._home = login.access, login.home
        if login.home is not None:
            self._services = login.home.services
        self._frames.allow(self._services.broker.settings.of(KafkaSettings).socket_request_max_bytes)
        self._account.login()

    async def _run(self, answer: Answer, coroutine: Coroutine[Any, Any, Any], *, apart: bool = False) -> None:
        if apart:
            with uncollected():
                await self._run(answer, coroutine)
            return
        if self._asks_long:
            await self._services.turn.wait()
        began = perf_counter()
        try:
            response = await coroutine
            self._asks_long = perf_counter() - began > LONG_SECONDS
            if response is not None and perf_counter() - began > MOST_SECONDS / 2 and not self._ended:
                # It may well have many rows. (It may have waited, too: then this does no harm.)
                answer.encoded = await asyncio.get_running_loop().run_in_executor(
                    None, self._encoded, answer, response
                )
        except Exception as error:
            self._answered(answer, None, error)
        else:
            self._answered(answer, response, None)

    def _encoded(self, answer: Answer, response: Any) -> bytes:
        self._translate(answer, response)
        encoded: bytes = response.encode(answer.header.api_version)
        let_go(response)
        if answer.request is not None:
            let_go(answer.request)
            answer.request = None
        return encoded

    @staticmethod
    def _translate(answer: Answer, response: Any) -> None:
        if answer.translate is not None:
            answer.translate(response)

    def _answered(self, answer: Answer, response: Any, error: BaseException | None) -> None:
        if self._ended:
            return  # what it held was given back when the conversation ended
        self._hold(-answer.size)
        answer.size = 0  # given back
        header = answer.header
        try:
            if error is not None:
                raise error
            if response is None:  # acks=0: the client wants none
                answer.parts = ()
            else:
                head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
                if answer.encoded is None:
                    self._translate(answer, response)
                    answer.parts = [head, *response.encode_parts(header.api_version)]
                else:
                    answer.parts = [head, answer.encoded]
        except Exception as failure:
            self._failed(header, failure)
            return
        if header.api_key == SASL_AUTHENTICATE or header.api_key == SASL_HANDSHAKE:
            self._authenticated()
        if answer.begun is None or self._beginning:
            self._collect()  # we are still inside the loop that began it, and that will send
        elif header.api_key == FETCH:
            self._catch_up()
        else:
            # One flush makes the appends of many requests durable: their answers go out together, too.
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._catching_up:
            self._catching_up = True
            asyncio.get_running_loop().call_soon(self._catch_up)

    def _authenticated(self) -> None:
        """The client has said something about who it is: from now on more is allowed, or it is over."""
        login = self._login
        if login is not None and login.failure is not None:
            self.refuse(login.failure)
        elif login is not None and login.is_done:
            self._logged_in(login)

    def _catch_up(self) -> None:
        self._catching_up = False
        self.go_on()
        self._end_if_idle()

    def _flush(self) -> None:
        """Send every answer whose turn it is; while requests are being begun, all at once when that is done."""
        self._collect()
        if self._ready and not self._beginning:
            ready, self._ready, self._ready_bytes = self._ready, [], 0
            self._send(ready)

    def _collect(self) -> None:
        """Take the answers whose turn it is."""
        answers = self._answers
        while answers and answers[0].parts is not None:
            parts = answers.popleft().parts
            if parts and not self._gone:
                size = sum(map(len, parts))
                self._ready.append(size.to_bytes(4, "big"))
                self._ready += parts
                self._ready_bytes += size
        if not answers:
            self._blocked = False

    def _unsupported(self, header: RequestHeader) -> None:
        """Answer a client whose ApiVersions is newer than ours; end a connection that asks for anything else."""
        if header.api_key != API_VERSIONS:
            self.refuse(f"API key {header.api_key} version {header.api_version} is not served")
            return
        answer = Answer(header, 0, None)
        answer.parts = [
            encode_response_header(API_VERSIONS, 0, header.correlation_id),
            *unsupported_version().encode_parts(0),
        ]
        self._answers.append(answer)
        self._flush()

    def _failed(self, header: RequestHeader, error: BaseException) -> None:
        if isinstance(error, ConnectionAbortedError | WireError | AuthenticationRequired):
            self.refuse(str(error))
            return
        _log.error("request failed: api=%d client=%s", header.api_key, self.peer, exc_info=error)
        self.close()

    def refuse(self, why: str) -> None:
        """End the conversation with one line in the log."""
        if not self._ended:
            _log.warning("connection from %s (client id %r) closed: %s", self.peer, self.client_id, why)
            self.close()

    def close(self) -> None:
        """Stop waiting for anything; what was appended stays appended."""
        if self._ended:
            return
        self._ended = True
        self._collect()
        for answer in self._answers:
            if answer.parts is None:
                self._hold(-answer.size)
            if answer.begun is not None and answer.header.api_key == FETCH:
                stop(answer.begun)
        self._answers.clear()
        self._services.fetch_sessions.forget(self._account)
        if self._ready:  # answers to what came before the request that ends it all
            self._send(self._ready)
            self._ready = []
        self._end()


def stop(begun: Eager | asyncio.Task[None]) -> None:
    """Give up what waits."""
    if isinstance(begun, Eager):
        begun.stop()
    else:
        begun.cancel()
