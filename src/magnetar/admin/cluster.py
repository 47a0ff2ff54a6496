"""A small blocking client of Kafka's protocol, for an operator's orders: one request at a time, no threads, no retries.

It speaks the highest version that both sides know, and works against any Kafka broker.
"""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from magnetar.admin import credentials
from magnetar.admin.errors import AdminError, Invalid, Unreachable
from magnetar.admin.refusals import check
from magnetar.client.security import Security
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.api_versions_response import ApiVersionsResponse
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse

Answer = TypeVar("Answer", bound=Message)
Address = tuple[str, int]

CLIENT_ID = "magnetar-cli"
MOST_BYTES = 256 << 20
_SIZE = struct.Struct(">i")


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT`` (an IPv6 host in brackets; the first of a list); raise `Invalid`."""
    host, _, port = text.split(",")[0].strip().removeprefix("PLAINTEXT://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Invalid(f"{text!r} is no address of a broker", "Write HOST:PORT, as in 127.0.0.1:9092.")
    return host.strip("[]"), int(port)


class Connection:
    """One connection to one broker."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._correlation = 0
        self._versions: dict[int, tuple[int, int]] = {}
        where = f"{address[0]}:{address[1]}"
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise Unreachable(
                f"no broker answers at {where}: {error.strerror or error}",
                "Start one with 'magnetar standalone', or name it with --bootstrap-server "
                "or MAGNETAR_BOOTSTRAP_SERVER.",
            ) from error
        wanted = credentials.security()
        if wanted.tls:
            try:
                self._socket = wanted.context().wrap_socket(self._socket, server_hostname=address[0])
            except OSError as error:
                self._socket.close()
                raise Unreachable(
                    f"no TLS with {where}: {error}", f"Look at the file that {credentials.VARIABLE} names."
                ) from error
        self._input = self._socket.makefile("rb")
        said = self._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0)
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in said.api_keys}
        if wanted.mechanism is not None:
            self._log_in(wanted)

    def _log_in(self, wanted: Security) -> None:
        what = f"{wanted.mechanism} at {self.address[0]}:{self.address[1]}"
        handshake = self._exchange(
            SaslHandshakeRequest(mechanism=wanted.mechanism or ""), SaslHandshakeResponse, 1
        )
        check(handshake.error_code, None, what)
        login = wanted.login()
        said = next(login)
        while True:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=said), SaslAuthenticateResponse)
            check(answer.error_code, answer.error_message, what)
            try:
                said = login.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def ask(self, request: Message, answer: type[Answer], *, most: int | None = None) -> Answer:
        """Give the broker's answer; ``most`` is the highest version that the caller's fields fit."""
        low, high = self._versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION if most is None else most)
        if version < max(low, request.MIN_VERSION):
            raise AdminError(
                f"the broker does not speak {type(request).__name__} as we do", "Update one of both."
            )
        return self._exchange(request, answer, version)

    def _exchange(self, request: Message, answer: type[Answer], version: int) -> Answer:
        self._correlation += 1
        head = encode_request_header(RequestHeader(request.API_KEY, version, self._correlation, CLIENT_ID))
        frame = head + request.encode(version)
        try:
            self._socket.sendall(_SIZE.pack(len(frame)) + frame)
            size = _SIZE.unpack(self._read(_SIZE.size))[0]
            if not 4 <= size <= MOST_BYTES:
                raise WireError(f"an answer of {size} bytes")
            _, body = decode_response_header(self._read(size), request.API_KEY, version)
            return answer.decode(body, version)
        except (OSError, WireError) as error:
            raise Unreachable(
                f"{self.address[0]}:{self.address[1]} did not answer {type(request).__name__}: {error}",
                "Is it a Kafka listener, and does it ask for TLS or authentication? "
                f"{credentials.VARIABLE} names a file with security.protocol and so on. Look at the broker's log.",
            ) from error

    def _read(self, size: int) -> bytes:
        data = self._input.read(size)
        if len(data) < size:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._input.close()
        self._socket.close()


class Cluster:
    """The brokers behind a bootstrap address. Use it with ``with``; raises `AdminError` and its kinds."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10) -> None:
        self._address = parse_address(bootstrap)
        self._timeout_s = timeout_s
        self._open: dict[Address, Connection] = {}

    def ask(self, request: Message, answer: type[Answer], *, most: int | None = None) -> Answer:
        """Ask the bootstrap broker."""
        return self._connection(self._address).ask(request, answer, most=most)

    def ask_coordinator(
        self, group: str, request: Message, answer: type[Answer], *, most: int | None = None
    ) -> Answer:
        """Ask the broker that keeps a group."""
        found = self.ask(FindCoordinatorRequest(key=group), FindCoordinatorResponse, most=3)
        check(found.error_code, found.error_message, f"group {group}")
        return self._connection((found.host, found.port)).ask(request, answer, most=most)

    def _connection(self, address: Address) -> Connection:
        if address not in self._open:
            self._open[address] = Connection(address, self._timeout_s)
        return self._open[address]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()
