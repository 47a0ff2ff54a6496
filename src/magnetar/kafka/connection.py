"""One client's requests in, answers out. It never touches a socket: bytes come in, parts go out.

What may be begun when, and what is sent when, is `magnetar.serving.serving`'s; here requests are read, handed to their
handlers, and their answers written. Whatever cannot be read ends the connection with one log line.

What a client sends at once is not all carried out at once: after some milliseconds others have their turn, and so it is
when its answers have become much. Once it has gone, only what changes something is still carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from magnetar.auth import AuthenticationFailed
from magnetar.auth.errors import AuthenticationRequired
from magnetar.base.collector import uncollected
from magnetar.kafka.answers import Answer
from magnetar.kafka.clients import NOTHING_ASKED
from magnetar.kafka.context import RequestContext, Software
from magnetar.kafka.giving_up import GivingUp
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.kafka.handlers.api_versions import unsupported_version
from magnetar.kafka.route import Handler, Route, is_reset
from magnetar.kafka.services import KafkaServices
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.slow_requests import note_slow
from magnetar.records.compression import Buffer
from magnetar.serving.eager import Eager
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import Account
from magnetar.serving.pace import LONG_SECONDS, MANY_ROWS, MAX_SECONDS, is_long
from magnetar.serving.serving import (
    ENDED,
    IDLE,
    ORDERED,
    SERVING,
    SHORT,
    ClientState,
    Event,
    KafkaServing,
    KafkaServingState,
)
from magnetar.wire.kafka.between_brokers import BETWEEN_BROKERS_KEY
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.header import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
)
from magnetar.wire.kafka.malformed import TooManyElements, WireError
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.primitives import MAX_ELEMENTS, MAX_REQUEST_ELEMENTS

if TYPE_CHECKING:
    from magnetar.kafka.login import Login
    from magnetar.kafka.partitions.opening_ahead import OpeningAhead
    from magnetar.kafka.tenancy import Home

PRODUCE, FETCH, API_VERSIONS = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS
OFFSET_COMMIT = ApiKey.OFFSET_COMMIT
SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
ROWS_COST = 12
"""So many times what its rows took on the wire a request takes while it is carried out; Produce has few of them."""
APART_BYTES = 64 << 10
"""Requests above that are read in a thread, but Produce, whose bytes are batches and not rows, unless it has many."""
_LOOKED_AHEAD = 64
"""Requests that are looked at before their turn."""
_NOTHING = -1
_HIGHEST = 1 << 15
"""Above all versions."""
_log = logging.getLogger("magnetar.kafka")
_giving_up = GivingUp(_log)


class KafkaConnection:
    """What goes on with one client. ``send`` takes an answer's parts; ``end`` closes the connection.

    ``account`` counts what has come and what is under way. ``went_on`` is called whenever requests may have been begun
    or answered, with how many of them wait or are under way, and how many bytes those have that were not begun;
    ``hold`` with True when the client is to wait for its quota, and with False, before ``went_on``, when it has.
    """

    def __init__(
        self,
        services: KafkaServices,
        listener: Listener,
        peer: str,
        frames: KafkaFrameReader,
        send: Callable[[Sequence[Buffer]], None],
        end: Callable[[], None],
        account: Account,
        login: Login | None = None,
        went_on: Callable[[int, int], None] = lambda waiting, nbytes: None,
        hold: Callable[[bool], None] = lambda on: None,
    ) -> None:
        self.peer = peer
        self._login = login
        self._access = None if login is None else login.access
        self._home: Home | None = None
        self._services = services
        self._requests = services.requests
        self._listener = listener
        self._frames = frames
        self._end = end
        self._account = account
        self._went_on = went_on
        self._hold = hold
        self._unmuting: asyncio.TimerHandle | None = None
        self._in_hand = 0  # bytes of requests under way, as ``Answer.size`` has them
        self._counted = 0  # of those, and of what ``frames`` holds
        self._client_host = "/" + peer
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: KafkaServing[Answer] = KafkaServing(
            frames,
            self._begin_next,
            send,
            later=asyncio.get_running_loop().call_soon,
            gathering=services.broker.engine.gathering,
            wakeups=services.wakeups,
            others_first=lambda: services.turn.is_over,
            went_on=self._look,
            done=self.close,
        )
        self.go_on = self._serving.go_on
        """Bytes have come, or there is room again."""
        self._asks_long = True  # what was asked last; of who has asked nothing yet nobody knows
        self._asked_last = _NOTHING
        self._looked_at: memoryview | None = None
        """The last frame by which partitions were opened ahead."""
        self.client_id = ""
        self.software = Software()
        self.asked = NOTHING_ASKED
        """The lowest versions that clients of its software asked for."""

    @property
    def under_way(self) -> int:
        """How many requests were begun and are not answered yet."""
        return len(self._serving.in_flight)

    @property
    def has_ended(self) -> bool:
        """Whether it begins nothing more, and all that it had begun was answered or given up."""
        return self._serving.state is ENDED

    # -- what happens to it

    def pause(self) -> None:
        """The client does not take its answers."""
        self._serving.client_did(Event.IS_SLOW)

    def resume(self) -> None:
        """It has taken them."""
        self._serving.client_did(Event.TAKES)

    def leave(self) -> None:
        """Nobody listens any more, but bytes may still come. As in Kafka, whole requests that arrive are still carried
        out: a producer with acks=0 sends and closes. Only what merely asks is given up."""
        self._unmute()
        self._give_up_fetches()
        self._serving.client_did(Event.LEFT)

    def hang_up(self) -> None:
        """Nothing more comes, either: carry out what has come whole, and end."""
        self._unmute()
        self._give_up_fetches()
        self._serving.client_did(Event.IS_LOST)

    def refuse(self, why: str) -> None:
        """End the conversation with one line in the log."""
        if not self.has_ended:
            _log.warning(
                "connection from %s (client id %.80r) closed: %.500s", self.peer, self.client_id, why
            )
            self.close()

    def close(self) -> None:
        """Stop waiting for anything; what was appended stays appended."""
        if self.has_ended:
            return
        if self._unmuting is not None:
            self._unmuting.cancel()
        if self._is_gone and self._asked_last != _NOTHING:
            who = (self.peer, self.software.name, self.software.version)
            if self._asked_last == API_VERSIONS:
                _giving_up.gave_up(who, self.client_id)
            else:
                _giving_up.went_further(who)
        for answer in self._serving.end():
            self._let_go(answer)
            if answer.header.api_key == FETCH:
                answer.stop()
        # Requests that were begun may still come to where they begin a session.
        self._account.is_orphan = True
        self._services.fetch_sessions.forget(self._account)
        self._services.shares.forget(self._account)
        self._count()
        self._end()

    def _give_up_fetches(self) -> None:
        self._services.shares.desert(self._account)
        for answer in self._serving.in_flight:
            if answer.parts is None and answer.header.api_key == FETCH:
                answer.stop()
                self._let_go(answer)
                answer.parts = ()

    def _let_go(self, answer: Answer) -> None:
        self._in_hand -= answer.size
        answer.size = 0

    def _look(self) -> None:
        """Count what is kept, and have it seen to whether to read on."""
        self._count()
        frames, under_way = self._frames, len(self._serving.in_flight)
        waiting = frames.waiting
        self._went_on(waiting + under_way, frames.waiting_bytes if waiting else 0)
        if self._serving.state is ORDERED and (ahead := self._services.partitions.ahead) is not None:
            self._open_ahead(ahead)

    def _open_ahead(self, ahead: OpeningAhead) -> None:
        """Have partitions be opened that requests are about which have come and may not be begun yet."""
        route = ROUTE_BY_KEY[PRODUCE]
        for frame in self._frames.behind(self._looked_at, _LOOKED_AHEAD):
            self._looked_at = frame
            try:
                header, body = decode_request_header(frame)
                if header.api_key != PRODUCE or header.api_version not in route.versions:
                    continue
                request = route.load()[0].decode(body, header.api_version, max_elements=_LOOKED_AHEAD)
            except WireError:  # whoever carries it out says so, or it has too many rows
                continue
            if self._home is not None:
                self._home.inward(route.names, request)
            for topic in request.topic_data:
                for row in topic.partition_data:
                    if not ahead.want(topic.name, topic.topic_id, row.index, self._access):
                        return

    def _count(self) -> None:
        """Charge what is kept now: a request that was answered in the event that brought it never is."""
        # What came and will not be begun any more goes with the connection.
        held = self._in_hand
        if self._serving.state is not ENDED:
            held += self._frames.held_bytes
        if held != self._counted:
            counted, self._counted = self._counted, held
            self._account.charge(held - counted)

    # -- requests

    def _begin_next(self) -> KafkaServingState:
        try:
            frame = self._frames.next_frame()
            return IDLE if frame is None else self._begin(frame)
        except (WireError, AuthenticationRequired) as error:
            self.refuse(str(error))
            return ENDED

    def _begin(self, frame: memoryview) -> KafkaServingState:
        login = self._login
        if login is not None and login.takes_raw:
            self._authenticate_raw(login, frame)
            return SERVING
        header, body = decode_request_header(frame)
        self._asked_last = header.api_key
        if login is not None:
            login.check(header.api_key)
        route = ROUTE_BY_KEY.get(header.api_key)
        if route is None and header.api_key == BETWEEN_BROKERS_KEY:
            from magnetar.kafka.handlers.between_brokers import (
                ROUTE as route,  # one broker alone never needs it
            )
        if route is None or header.api_version not in route.versions:
            self._unsupported(header)
            return SERVING
        if route.asks and self._is_gone:
            return SERVING
        if header.api_version < self.asked.get(header.api_key, _HIGHEST):
            self._note_version(header)
        self.client_id = header.client_id or ""
        size = len(frame)
        if size <= APART_BYTES:
            self._start(route, header, body, size, MAX_ELEMENTS)
            return SERVING
        if header.api_key == PRODUCE:
            try:
                self._start(route, header, body, size, MANY_ROWS)
            except TooManyElements:
                pass  # nothing of it was begun
            else:
                return SERVING
        self._frames.put_back(frame)  # so that it is counted
        self._count()
        if not self._account.may_take_more():
            return SHORT
        self._frames.next_frame()
        self._start_apart(route, header, body, size)
        return SERVING

    def _note_version(self, header: RequestHeader) -> None:
        if header.api_key == API_VERSIONS:
            return  # it says which software asks, and every version of it has an answer
        if self.asked is NOTHING_ASKED:
            self.asked = self._services.clients.asked_by(self.software.name, self.software.version)
        if header.api_version < self.asked.get(header.api_key, _HIGHEST):
            self.asked[header.api_key] = header.api_version

    @property
    def _is_gone(self) -> bool:
        return self._serving.client in (ClientState.GONE, ClientState.LOST)

    def _start(
        self, route: Route, header: RequestHeader, body: memoryview, size: int, max_elements: int
    ) -> None:
        """Read a request and hand it over; raise `TooManyElements` with nothing done."""
        request_class, handler = route.load()
        request = request_class.decode(body, header.api_version, max_elements=max_elements)
        if self._home is not None:
            self._home.inward(route.names, request)
        context = self._context(header)
        if header.api_key == PRODUCE:
            answer = self._take_up(header, size, context)
        else:
            answer = self._take_up(header, size * ROWS_COST, context)
            self._serving.may_put_off = True
        self._serve(answer, context, route, handler, request)

    def _start_apart(self, route: Route, header: RequestHeader, body: memoryview, size: int) -> None:
        """Have a request read in a thread."""
        context = self._context(header)
        answer = self._take_up(header, size * ROWS_COST, context)
        self._serving.may_put_off = True
        request_class, _ = route.load()
        decode = partial(
            request_class.decode, bytes(body), header.api_version, max_elements=MAX_REQUEST_ELEMENTS
        )
        answer.begun = self._task(self._serve_large(answer, context, route, decode))

    def _take_up(self, header: RequestHeader, size: int, context: RequestContext | None) -> Answer:
        """Return a request its place in the order of answers."""
        answer = Answer(header, size, context, self._serving.began_s)
        self._serving.in_flight.append(answer)
        self._in_hand += size
        return answer

    def _context(self, header: RequestHeader) -> RequestContext:
        return RequestContext(
            self._services,
            header.api_version,
            self.client_id,
            self._client_host,
            self._listener,
            self._login,
            self._access,
            self.software,
            self._account,
        )

    async def _serve_large(
        self, answer: Answer, context: RequestContext, route: Route, decode: Callable[[], Any]
    ) -> None:
        """Read a request in a thread, whose many rows would hold up everybody else."""
        try:
            with uncollected():
                request = await asyncio.get_running_loop().run_in_executor(None, self._inward, route, decode)
            if self._is_gone and route.asks:
                self._answered(answer, None, None)
            elif not self.has_ended:
                self._serve(answer, context, route, route.load().handler, request, apart=True)
        except Exception as error:
            self._failed(answer.header, error)

    def _inward(self, route: Route, decode: Callable[[], Any]) -> Any:
        request = decode()
        if self._home is not None:
            self._home.inward(route.names, request)
        return request

    def _serve(
        self,
        answer: Answer,
        context: RequestContext,
        route: Route,
        handler: Handler,
        request: Any,
        *,
        apart: bool = False,
    ) -> None:
        if self._access is not None:
            from magnetar.kafka.authorization import guarded  # loaded with the login

            handler = guarded(route, handler, self._access, request)
        if (home := self._home) is not None:
            answer.translate = lambda response: home.outward(route.names, response)
        coroutine = handler(request, context)
        if route.changes or (route.api_key == OFFSET_COMMIT and is_reset(request)):
            from magnetar.kafka.audited import audited  # most clients change nothing

            coroutine = audited(coroutine, context, route, request, answer.header.correlation_id)
        if context.kafka.quotas.enabled:
            from magnetar.kafka.throttling import throttled

            nbytes = answer.size // ROWS_COST if apart else answer.size
            coroutine = throttled(coroutine, context, route.api_key, nbytes, self.mute)
        if apart:
            answer.request = request
        if route.is_eager and not apart:
            answer.begun = Eager(coroutine, lambda response, error: self._answered(answer, response, error))
        else:
            answer.begun = self._task(self._run(answer, coroutine, apart=apart))

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, answer: Answer, coroutine: Coroutine[Any, Any, Any], *, apart: bool = False) -> None:
        if apart:
            with uncollected():
                await self._run(answer, coroutine)
            return
        if self._asks_long:
            await self._services.turn.wait()
        began = perf_counter()
        if answer.context is not None:
            answer.context.begun_s = began
        try:
            response = await coroutine
            self._services.requests[answer.header.api_key].count_errors(response)
            seconds = perf_counter() - began
            self._asks_long = seconds > LONG_SECONDS
            has_many_rows = answer.context is not None and answer.context.has_many_rows
            took_long = seconds > MAX_SECONDS / 2  # or waited
            is_large = has_many_rows or (took_long and is_long(response))
            if is_large and response is not None and not self.has_ended:
                response = await answer.encoded_apart(response)
        except Exception as error:
            self._answered(answer, None, error)
        else:
            self._answered(answer, response, None)

    # -- what it may

    def mute(self, wait_ms: int) -> None:
        """Take up nothing more of the client for so long; what was begun is still answered."""
        if self.has_ended or self._is_gone:
            return
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_ms / 1000
        if self._unmuting is not None:
            if self._unmuting.when() >= ends_at:
                return
            self._unmuting.cancel()
        self._unmuting = loop.call_at(ends_at, self._unmute)
        self._serving.mute()
        self._hold(True)

    def _unmute(self) -> None:
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
            self._hold(False)
            self._serving.unmute()

    # -- who it is

    def _authenticate_raw(self, login: Login, frame: memoryview) -> None:
        """After version 0 of SaslHandshake, what SASL says comes, and is answered, without header."""
        answer = self._take_up(RequestHeader(ApiKey.SASL_AUTHENTICATE, 0, 0, None), len(frame), None)
        answer.begun = self._task(self._run_raw(login, answer, bytes(frame)))

    async def _run_raw(self, login: Login, answer: Answer, said: bytes) -> None:
        try:
            answered = await login.authenticate(said, self.peer)
        except AuthenticationFailed as error:
            self.refuse(str(error))
        else:
            if login.is_done:
                self._logged_in(login)
            self._let_go(answer)
            answer.parts = (answered.said,)
            self._serving.answered(at_once=True)

    def _authenticated(self) -> None:
        """The client has said something about who it is: from now on more is allowed, or it is over."""
        login = self._login
        if login is not None and login.failure is not None:
            self.refuse(login.failure)
        elif login is not None and login.is_done:
            self._logged_in(login)

    def _logged_in(self, login: Login) -> None:
        self._access, self._home = login.access, login.home
        if login.home is not None:
            self._services = login.home.services
        self._frames.allow(self._services.broker.settings.of(KafkaSettings).socket_request_max_bytes)
        self._account.login()

    # -- answers

    def _answered(self, answer: Answer, response: Any, error: BaseException | None) -> None:
        if self._serving.state is ENDED:
            return  # what it held was given back when the conversation ended
        self._in_hand -= answer.size  # as `_let_go`, for every small request
        answer.size = 0
        header = answer.header
        try:
            if error is not None:
                raise error
            answer.parts = answer.encoded(response)
        except Exception as failure:
            self._failed(header, failure)
            return
        # Not by a method: for small requests a call would be much of what it costs to count.
        figures = self._requests[header.api_key]
        took_s = perf_counter() - answer.came_s
        figures.seconds += took_s
        figures.recent.append(took_s)
        figures.versions[header.api_version] += 1
        if took_s >= figures.slow_s:
            note_slow(answer, self.peer, took_s, figures.slow_s)
        if header.api_key in SASL:
            self._authenticated()
        # Fetches are answered at once. One flush makes the appends of many requests durable: they are together.
        self._serving.answered(at_once=header.api_key == FETCH)

    def _unsupported(self, header: RequestHeader) -> None:
        """Answer a client whose ApiVersions is newer than ours; end a connection that asks for anything else."""
        if header.api_key != API_VERSIONS:
            self.refuse(f"API key {header.api_key} version {header.api_version} is not served")
            return
        self._take_up(header, 0, None).parts = [
            encode_response_header(API_VERSIONS, 0, header.correlation_id),
            *unsupported_version().encode_parts(0),
        ]

    def _failed(self, header: RequestHeader, error: BaseException) -> None:
        if isinstance(error, ConnectionAbortedError | WireError | AuthenticationRequired):
            self.refuse(str(error))
            return
        _log.error("request failed: api=%d client=%s", header.api_key, self.peer, exc_info=error)
        self.close()
