"""One connection to one broker: requests out, answers in, in order. The only place here with a socket."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any

from magnetar.client.errors import ClientError, Unreachable, check
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from magnetar.client.security import Security
    from magnetar.client.settings import ClientSettings
    from magnetar.wire.kafka.message import Message

_MOST_BYTES = 1 << 30
_VERSIONS_ASKED = 3


class Connection:
    """Connected once it is made; raises `Unreachable` then and whenever the connection breaks."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.place = f"{host}:{port}"
        self._settings = settings
        self._correlation = 0
        self._awaited: deque[tuple[int, int, int]] = deque()
        self._socket = self._connect(host, port)
        try:
            self._versions = self._ask_versions()
            if settings.security.mechanism is not None:
                self._log_in(settings.security)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request and give its answer; no other may be awaited meanwhile."""
        assert not self._awaited
        self.send(request, version)
        return self.receive()

    def send(self, request: Message, version: int | None = None) -> None:
        """Send a request in the newest version that both sides know; its answer comes by `receive`."""
        version = self.version_of(type(request)) if version is None else version
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        header = RequestHeader(request.API_KEY, version, self._correlation, self._settings.client_id)
        parts = [encode_request_header(header), *request.encode_parts(version)]
        size = sum(len(part) for part in parts).to_bytes(4, "big")
        try:
            self._socket.sendall(b"".join((size, *parts)))
        except OSError as error:
            raise Unreachable(f"the connection to {self.place} broke: {error}") from None
        self._awaited.append((request.API_KEY, version, self._correlation))

    def receive(self) -> Any:
        """Give the answer to the oldest request that has none yet; record batches in it are views of one buffer."""
        api_key, version, awaited = self._awaited.popleft()
        frame = self._frame()
        try:
            correlation, body = decode_response_header(frame, api_key, version)
            if correlation != awaited:
                raise Unreachable(f"{self.place} answered request {correlation} where {awaited} was due")
            return response_class(api_key).decode(body, version)
        except WireError as error:
            raise Unreachable(f"{self.place} sent an answer that cannot be read: {error}") from None

    def version_of(self, request: type[Message]) -> int:
        """Give the newest version of an API that both sides know; raise `ClientError` if there is none."""
        low, high = self._versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION)
        if version < max(low, request.MIN_VERSION):
            raise ClientError(f"the broker at {self.place} does not serve {request.__name__}")
        return version

    def _connect(self, host: str, port: int) -> socket.socket:
        security = self._settings.security
        try:
            plain = socket.create_connection((host, port), self._settings.request_timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise Unreachable(f"no connection to {self.place}: {error}") from None
        if not security.tls:
            return plain
        try:
            return security.context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            plain.close()
            raise ClientError(f"no TLS with {self.place}: {error}") from None
        except OSError as error:
            plain.close()
            raise Unreachable(f"no TLS with {self.place}: {error}") from None

    def _log_in(self, security: Security) -> None:
        handshake: SaslHandshakeResponse = self.call(
            SaslHandshakeRequest(mechanism=security.mechanism or ""), 1
        )
        offered = ", ".join(handshake.mechanisms) or "none"
        what = f"{security.mechanism} at {self.place}"
        check(handshake.error_code, what, f"the broker offers {offered}")
        login = security.login()
        message = next(login)
        while True:
            answer: SaslAuthenticateResponse = self.call(SaslAuthenticateRequest(auth_bytes=message))
            check(answer.error_code, what, answer.error_message)
            try:
                message = login.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="magnetar-spark", client_software_version="1")
        answer: ApiVersionsResponse = self.call(request, _VERSIONS_ASKED)
        check(answer.error_code, f"ApiVersions at {self.place}")
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _frame(self) -> memoryview:
        size = int.from_bytes(self._exactly(4), "big", signed=True)
        if not 4 <= size <= _MOST_BYTES:
            raise Unreachable(f"{self.place} does not speak Kafka's protocol: it announces {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        at = 0
        try:
            while at < size:
                count = self._socket.recv_into(buffer[at:])
                if not count:
                    raise Unreachable(f"{self.place} closed the connection")
                at += count
        except OSError as error:
            raise Unreachable(f"the connection to {self.place} broke: {error}") from None
        return buffer.toreadonly()
