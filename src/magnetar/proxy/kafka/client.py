"""One client of the proxy: its requests in, the brokers' answers out, in the order in which it asked.

What may be begun when is `magnetar.serving.serving`'s, as on a broker: requests of Produce overlap, any other begins
when all before it are answered. Each client has connections of its own to the brokers that it needs, so what one
waits for holds up nobody else, and what a producer sends keeps its order.

A request is passed on as it came wherever one broker has all that it names, but for its correlation id. Where several
have it, it is cut, and their answers are joined (`Relay`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

from magnetar.client.errors import ClientError
from magnetar.kafka.giving_up import GivingUp
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.proxy.kafka.login import ProxyLogin
from magnetar.proxy.kafka.passed import versions_of
from magnetar.proxy.kafka.producing import BatchRelay, with_few_rows
from magnetar.proxy.kafka.relay import Relay
from magnetar.proxy.kafka.request import ProxiedRequest
from magnetar.proxy.kafka.upstreams import Upstreams
from magnetar.records.compression import Buffer
from magnetar.serving.memory import MIN_BYTES, Account
from magnetar.serving.serving import (
    ENDED,
    IDLE,
    SERVING,
    SHORT,
    Event,
    KafkaServing,
    KafkaServingState,
)
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.header import RequestHeader, decode_request_header, encode_response_header
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.api_versions_response import ApiVersion, ApiVersionsResponse

PRODUCE, API_VERSIONS = ApiKey.PRODUCE, ApiKey.API_VERSIONS
_BEFORE_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_ROWS_COST = 12
"""So many times what it took on the wire a request takes while its rows are looked at; most of Produce have few."""
APART_BYTES = 64 << 10
_UNSUPPORTED_VERSION = 35
_NOTHING = -1
_log = logging.getLogger("magnetar.proxy")
_giving_up = GivingUp(_log)


class _NoGate:
    """Nobody here waits for what is appended."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


_NO_GATE = _NoGate()


def _gathering() -> AbstractContextManager[None]:
    return nullcontext()


class ProxiedClient:
    """What goes on with one client. ``send`` takes an answer's parts; ``end`` closes the connection.

    ``went_on`` is called whenever requests may have been begun or answered, with how many wait or are under way.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        login: ProxyLogin | None,
        relay: Callable[[ProxiedClient], Relay],
        peer: str,
        frames: KafkaFrameReader,
        send: Callable[[Sequence[Buffer]], None],
        end: Callable[[], None],
        account: Account,
        went_on: Callable[[int], None],
        allow_bytes: int,
    ) -> None:
        """``login`` is None where nobody needs to say who it is; ``allow_bytes`` are its requests to be at most."""
        self.peer = peer
        self._asked_last = _NOTHING
        self.client_id = ""
        self.software = ("", "")
        """The name and version that the client gives itself in ApiVersions (KIP-511)."""
        self.upstreams = upstreams
        self.account = account
        self._login = login
        self._frames = frames
        self._end = end
        self._went_on = went_on
        self._allow_bytes = allow_bytes
        self._is_gone = False
        self._in_hand = 0  # bytes of requests under way
        self._counted = 0
        self._of_brokers = 0  # bytes that have come of them and are not whole, or that they do not take
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: KafkaServing[ProxiedRequest] = KafkaServing(
            frames,
            self._begin_next,
            send,
            later=asyncio.get_running_loop().call_soon,
            gathering=_gathering,
            wakeups=_NO_GATE,
            went_on=self._look,
            done=self.close,
        )
        self.relay = relay(self)
        self._producing = BatchRelay(self.relay, self._answered, self._failed)
        upstreams.on_change = self._upstream_changed
        upstreams.on_end = self.refuse
        if login is None:
            frames.allow(allow_bytes)

    @property
    def has_ended(self) -> bool:
        """Whether it begins nothing more, and all that it had begun was answered or given up."""
        return self._serving.state is ENDED

    # -- what happens to it

    def go_on(self) -> None:
        """Bytes have come, or there is room again."""
        self._serving.go_on()

    def pause(self) -> None:
        """The client does not take its answers."""
        self._serving.client_did(Event.IS_SLOW)

    def resume(self) -> None:
        """It has taken them."""
        self._serving.client_did(Event.TAKES)

    def hang_up(self) -> None:
        """Nothing more comes, and nobody listens. As on a broker, what has come whole and changes something is still
        passed on: a producer with acks=0 sends and closes. Only of batches it is waited that they are."""
        self._is_gone = True
        for request in self._serving.in_flight:
            if request.parts is None and request.header.api_key != PRODUCE:
                self._let_go(request)
                request.parts = ()
        self._serving.client_did(Event.IS_LOST)

    def refuse(self, why: str) -> None:
        """End the conversation with one line in the log."""
        if not self.has_ended:
            _log.warning(
                "connection from %s (client id %.80r) closed: %.500s", self.peer, self.client_id, why
            )
            self.close()

    def close(self) -> None:
        """Stop waiting for anything; what brokers were asked to do, they do."""
        if self.has_ended:
            return
        if self._is_gone and self._asked_last != _NOTHING:
            who = (self.peer, *self.software)
            if self._asked_last == API_VERSIONS:
                _giving_up.gave_up(who, self.client_id)
            else:
                _giving_up.went_further(who)
        for request in self._serving.end():
            self._let_go(request)
        for task in self._tasks:
            task.cancel()
        self.relay.close()
        self.upstreams.close()
        self._of_brokers = 0
        if self._login is not None:
            self._login.close()
        self._count()
        self._end()

    # -- counting

    def _look(self) -> None:
        self._count()
        self._went_on(self._frames.waiting + len(self._serving.in_flight))

    def _count(self) -> None:
        held = self._in_hand + self._of_brokers + self.relay.held_bytes
        held = held if self.has_ended else held + self._frames.held_bytes
        if held != self._counted:
            counted, self._counted = self._counted, held
            self.account.charge(held - counted)

    def _upstream_changed(self) -> None:
        """Bytes came from a broker, or went there; what is not whole yet is kept, too."""
        self._of_brokers = self.upstreams.held_bytes
        self._count()
        self.read_answers()

    def read_answers(self) -> None:
        """Read what brokers answer as long as there is room, and always while it takes next to no memory.

        The memory of the client's own requests is given back by their answers: it would wait for itself else.
        """
        if not self.has_ended:
            self.upstreams.read(self._of_brokers <= MIN_BYTES or self.account.may_take_more())

    def _let_go(self, request: ProxiedRequest) -> None:
        self._in_hand -= request.size
        request.size = 0

    # -- requests

    def _begin_next(self) -> KafkaServingState:
        try:
            frame = self._frames.next_frame()
            return IDLE if frame is None else self._begin(frame)
        except WireError as error:
            self.refuse(str(error))
            return ENDED

    def _begin(self, frame: memoryview) -> KafkaServingState:
        header, body = decode_request_header(frame)
        self._asked_last = header.api_key
        if header.api_version not in versions_of(header.api_key):
            self._unsupported(header)
            return SERVING
        if self._login is not None and not self._login.is_done and header.api_key not in _BEFORE_LOGIN:
            self.refuse(f"API key {header.api_key} before authentication")
            return ENDED
        if self._login is not None and self._login.is_done and not self._may_ask(header.api_key):
            return ENDED
        if self._is_gone and ROUTE_BY_KEY[header.api_key].asks:
            return SERVING
        self.client_id = header.client_id or ""
        if header.api_key == API_VERSIONS:
            named = ApiVersionsRequest.decode(body, header.api_version)
            self.software = (named.client_software_name, named.client_software_version)
        size = len(frame)
        produce = with_few_rows(header, body) if header.api_key == PRODUCE else None
        if produce is None:
            if size > APART_BYTES and not self.account.may_take_more():
                self._frames.put_back(frame)
                return SHORT
            size *= _ROWS_COST
        request = ProxiedRequest(header, size, self._serving.began_s)
        self._serving.in_flight.append(request)
        self._in_hand += size
        if header.api_key == PRODUCE:
            if produce is None or not self._producing.begin(request, frame, produce):
                self._task(request, self._producing.run(request, frame, body, produce))
        elif not self.relay.begin(request, frame, body, self._answered, self._failed):
            self._task(request, self._run(request, frame, body))
        return SERVING

    def _may_ask(self, api_key: int) -> bool:
        """Whether a client that was let in has not to prove again who it is (KIP-368); it is let go otherwise."""
        assert self._login is not None
        if self._login.is_speaking and api_key != ApiKey.SASL_AUTHENTICATE:
            self.refuse(f"API key {api_key} between SaslHandshake and SaslAuthenticate")
        elif api_key not in _BEFORE_LOGIN and self._login.has_expired(asyncio.get_running_loop().time()):
            self.refuse("the session has ended, and the client has not authenticated again")
        return not self.has_ended

    async def _run(self, request: ProxiedRequest, frame: memoryview, body: memoryview) -> None:
        header = request.header
        login = self._login
        asks_anew = login is not None and login.is_done and header.api_key == API_VERSIONS
        if login is not None and header.api_key in _BEFORE_LOGIN and not asks_anew:
            answer = await login.answer(header, frame, body)
            self._answered(request, answer)
            if login.failure is not None:
                self.refuse(login.failure)
            elif login.is_done:
                self._frames.allow(self._allow_bytes)
                self.account.login()
            return
        self._answered(request, await self.relay.answer(header, frame, body))

    def _task(self, request: ProxiedRequest, work: Any) -> None:
        task = asyncio.ensure_future(self._guarded(request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, request: ProxiedRequest, work: Any) -> None:
        try:
            await work
        except Exception as error:
            self._failed(request, error)

    # -- answers

    def _answered(self, request: ProxiedRequest, parts: Sequence[Buffer]) -> None:
        if self.has_ended or request.parts is not None:
            return
        self._let_go(request)
        request.parts = parts
        self.relay.figures.answered(request.header.api_key, perf_counter() - request.came_s)
        self._serving.answered(at_once=True)

    def _failed(self, request: ProxiedRequest, error: Exception) -> None:
        """A request whose outcome nobody knows ends its connection, as the end of the broker itself would."""
        if isinstance(error, ClientError | WireError | ConnectionError):
            self.refuse(f"{ApiKey(request.header.api_key).name}: {error}")
        elif not self.has_ended:
            _log.error("request failed: api=%d client=%s", request.header.api_key, self.peer, exc_info=error)
            self.close()

    def _unsupported(self, header: RequestHeader) -> None:
        """Answer a client whose ApiVersions is newer than ours; end a connection that asks for anything else."""
        if header.api_key != API_VERSIONS:
            self.refuse(f"API key {header.api_key} version {header.api_version} is not served")
            return
        known = versions_of(API_VERSIONS)
        answer = ApiVersionsResponse(
            error_code=_UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=known[0], max_version=known[-1])],
        )
        request = ProxiedRequest(RequestHeader(API_VERSIONS, 0, header.correlation_id, None), 0, 0.0)
        request.parts = [
            encode_response_header(API_VERSIONS, 0, header.correlation_id),
            *answer.encode_parts(0),
        ]
        self._serving.in_flight.append(request)
