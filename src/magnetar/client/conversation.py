"""What is said on one connection to a broker, without the connection: the one client of the house has it in the middle.

Whoever owns the socket (`magnetar.client.connection` blocks, `magnetar.client.async_connection` runs on a loop) writes
what `open` and `send` return, reads into `get_buffer`, tells by `buffer_updated` how much came, and takes `answers`.
So versions, logging in, framing and the order of answers are known in one place, and tested without a network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

from magnetar import __version__
from magnetar.client.errors import BrokerUnreachable, ClientError, check
from magnetar.wire.kafka.between_brokers import BETWEEN_BROKERS_KEY, BetweenBrokersResponse
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest

if TYPE_CHECKING:
    from magnetar.client.security import ClientSecurity, Work
    from magnetar.wire.kafka.message import Message

#: The longest answer that is believed: what announces more does not speak Kafka's protocol.
MAX_BYTES = 1 << 30
_SCRATCH_BYTES = 1 << 16
_SIZE = Struct(">i")
_ERROR = Struct(">h")
_FORWARDED = Struct(">iii")
_AS_IT_CAME = -1
_OF_LOGINS = frozenset({SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY})
#: What to write for one request; long records are parts of their own.
Parts: TypeAlias = tuple[bytes | memoryview, ...]
_Opening: TypeAlias = Generator["tuple[Message, int | None] | Work", Any, None]


class Conversation:
    """One connection's two sides of requests and answers. Every method may raise ``ClientError``; it is over then.

    ``place`` is how errors name the broker.
    """

    def __init__(
        self, place: str, *, client_id: str, security: ClientSecurity, works_apart: bool = False
    ) -> None:
        """``works_apart`` leaves to the owner what takes milliseconds, as `work`."""
        self.place = place
        self.work: Work | None = None
        """What a login waits for; the owner has it done in a thread, and then calls `worked`."""
        self._works_apart = works_apart
        self._at_work: _Opening | None = None
        self.answers: deque[Any] = deque()
        """Answers to what `send` sent, in that order; record batches in them are views of the bytes that came."""
        self.ready = False
        """Whether versions are known and the broker knows who we are: `send` is for then."""
        self.session_ms = 0
        """How long the broker said it will know that, from when it said so; 0 is for as long as we like (KIP-368)."""
        self._client_id = client_id
        self._versions = {ApiVersionsRequest.API_KEY: (0, ApiVersionsRequest.MAX_VERSION)}
        self._correlation = 0
        self._awaited: deque[tuple[int, int, int]] = deque()
        self._opening = self._open(security)
        self._again: _Opening | None = None
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._scratched = 0  # bytes in the scratch that are no whole frame yet
        self._frame: memoryview | None = None  # one frame, too long for the scratch, that is coming
        self._framed = 0

    @property
    def awaited(self) -> int:
        """How many answers are still to come."""
        return len(self._awaited)

    # Requests.

    def open(self) -> bytes:
        """Return what to write first; `buffer_updated` returns the rest, until `ready`."""
        return self._go_on(self._opening, None)

    def send(self, request: Message, version: int | None = None, *, max_version: int | None = None) -> Parts:
        """Return what to write for a request; its answer will be in `answers`.

        The version is the newest that both sides know, at most ``max_version``, unless the caller names one. Raises
        ``ClientError`` where there is none, and then nothing is awaited.
        """
        assert self.ready
        if version is None:
            version = self.version_of(type(request), max_version)
        return self._encode(request, version)

    def forward(self, frame: memoryview, *, is_answered: bool = True) -> Parts:
        """Return what to write for a request that another client wrote: header and body as they came, with a
        correlation id of this connection. Its answer will be in `answers` as it comes, header and all.
        """
        assert self.ready
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        if is_answered:
            self._awaited.append((_AS_IT_CAME, 0, self._correlation))
        return _FORWARDED.pack(len(frame), *_SIZE.unpack_from(frame), self._correlation), frame[8:]

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The first and last version of each API that the broker serves, once `ready`."""
        return self._versions

    def version_of(self, request: type[Message], max_version: int | None = None) -> int:
        """Return the newest version of an API that both sides know; raise ``ClientError`` if there is none."""
        low, high = self._versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION if max_version is None else max_version)
        if version < max(low, request.MIN_VERSION):
            raise ClientError(
                f"the broker at {self.place} does not serve {request.__name__} as it is asked here"
            )
        return version

    def _encode(self, request: Message, version: int | None) -> Parts:
        version = self.version_of(type(request)) if version is None else version
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        header = RequestHeader(request.API_KEY, version, self._correlation, self._client_id)
        parts = (encode_request_header(header), *request.encode_parts(version))
        self._awaited.append((request.API_KEY, version, self._correlation))
        return (_SIZE.pack(sum(map(len, parts))), *parts)

    def log_in_again(self, security: ClientSecurity) -> bytes:
        """Return what to write first to prove once more who we are (KIP-368); `receive` returns the rest.

        Until `is_logging_in` is false again nothing else may be sent; what was sent before is answered before.
        """
        assert self.ready
        self._again = self._log_in(security)
        return self._go_on(self._again, None)

    @property
    def is_logging_in(self) -> bool:
        """Whether what `log_in_again` has begun is not over."""
        return self._again is not None

    # Answers.

    def get_buffer(self) -> memoryview:
        """Return where the next bytes that come belong; it is never empty."""
        if self._frame is not None:
            return self._frame[self._framed :]
        return memoryview(self._scratch)[self._scratched :]

    def buffer_updated(self, count: int) -> bytes:
        """Take note that ``count`` bytes came into `get_buffer`; return what to write now (nothing, once `ready`).

        Raises ``BrokerUnreachable`` for what is no answer in Kafka's protocol, and what a log-in may raise.
        """
        if self._frame is None:
            self._scratched += count
            return self._take_frames()
        self._framed += count
        if self._framed < len(self._frame):
            return b""
        frame, self._frame = self._frame.toreadonly(), None
        return self.receive(frame)

    def closed(self) -> BrokerUnreachable:
        """Return what it means that the broker closed the connection now."""
        return BrokerUnreachable(f"{self.place} closed the connection")

    def _take_frames(self) -> bytes:
        """Receive the frames that are whole in the scratch; the rest moves to its start, or to a place of its own."""
        told, at, end = b"", 0, self._scratched
        while end - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._scratch, at)
            if not 4 <= size <= MAX_BYTES:
                raise BrokerUnreachable(
                    f"{self.place} does not speak Kafka's protocol: it announces {size} bytes"
                )
            begin = at + _SIZE.size
            if begin + size > end:
                if size > _SCRATCH_BYTES - _SIZE.size:
                    self._frame, self._framed = memoryview(bytearray(size)), end - begin
                    self._frame[: self._framed] = self._scratch[begin:end]
                    at = end
                break
            at = begin + size
            told += self.receive(memoryview(bytes(memoryview(self._scratch)[begin:at])))
        self._scratched = end - at
        self._scratch[: self._scratched] = self._scratch[at:end]
        return told

    def receive(self, frame: memoryview) -> bytes:
        """Take a whole frame, without its size, where the caller cuts them itself; return what to write now."""
        if not self._awaited:
            raise BrokerUnreachable(f"{self.place} answered what nobody asked")
        api_key, version, awaited = self._awaited.popleft()
        if api_key == _AS_IT_CAME:
            self._check_correlation(_SIZE.unpack_from(frame)[0], awaited)
            self.answers.append(frame)
            return b""
        try:
            correlation, body = decode_response_header(frame, api_key, version)
            self._check_correlation(correlation, awaited)
            if api_key == ApiVersionsRequest.API_KEY and len(body) >= 2:
                version = _answered_version(body, version)
            kind = BetweenBrokersResponse if api_key == BETWEEN_BROKERS_KEY else response_class(api_key)
            answer = kind.decode(body, version)
        except WireError as error:
            raise BrokerUnreachable(f"{self.place} sent an answer that cannot be read: {error}") from None
        opening = self._opening if not self.ready else self._again if api_key in _OF_LOGINS else None
        if opening is None:
            self.answers.append(answer)
            return b""
        return self._go_on(opening, answer)

    def worked(self, result: bytes) -> bytes:
        """Take what `work` came to; return what to write now."""
        opening, self._at_work, self.work = self._at_work, None, None
        assert opening is not None
        return self._go_on(opening, result)

    def _go_on(self, opening: _Opening, said: Any) -> bytes:
        try:
            told = opening.send(said)
            while not isinstance(told, tuple):
                if self._works_apart:
                    self._at_work, self.work = opening, told
                    return b""
                told = opening.send(told())
        except StopIteration:
            self.ready, self._again = True, None
            return b""
        return b"".join(self._encode(*told))

    def _check_correlation(self, correlation: int, awaited: int) -> None:
        if correlation != awaited:
            raise BrokerUnreachable(f"{self.place} answered request {correlation} where {awaited} was due")

    # How it begins.

    def _open(self, security: ClientSecurity) -> _Opening:
        asked = ApiVersionsRequest(client_software_name="magnetar", client_software_version=__version__)
        answer = yield asked, None
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # It tells of ApiVersions alone (KIP-511), or, before that, of nothing: version 0 is known to all.
            self._versions |= _versions_in(answer) or {ApiVersionsRequest.API_KEY: (0, 0)}
            answer = yield asked, None
        check(answer.error_code, f"ApiVersions at {self.place}")
        self._versions = _versions_in(answer)
        if security.mechanism is not None:
            yield from self._log_in(security)

    def _log_in(self, security: ClientSecurity) -> _Opening:
        what = f"{security.mechanism} at {self.place}"
        offered = yield SaslHandshakeRequest(mechanism=security.mechanism or ""), 1
        mechanisms = ", ".join(offered.mechanisms) or "none"
        check(offered.error_code, what, f"the broker offers {mechanisms}")
        login = security.login()
        told = next(login)
        while True:
            try:
                while not isinstance(told, bytes):
                    told = login.send((yield told))
                answer = yield SaslAuthenticateRequest(auth_bytes=told), None
                check(answer.error_code, what, answer.error_message)
                self.session_ms = answer.session_lifetime_ms
                told = login.send(bytes(answer.auth_bytes))
            except StopIteration:
                return


def _versions_in(answer: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def _answered_version(body: memoryview, asked: int) -> int:
    """Return the version an ApiVersions answer is in: 0 where the one asked for is not known (KIP-511)."""
    return 0 if _ERROR.unpack_from(body)[0] == ErrorCode.UNSUPPORTED_VERSION else asked
