"""One connection to one broker for whoever may wait: the blocking shell of `magnetar.client.conversation`."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

from magnetar.client.conversation import Conversation, Parts
from magnetar.client.errors import BrokerUnreachable, ClientError, NoConnection

if TYPE_CHECKING:
    from magnetar.client.settings import ClientSettings
    from magnetar.wire.kafka.message import Message


class Connection:
    """Connected once it is made; raises `BrokerUnreachable` then and whenever the connection breaks."""

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self._conversation = Conversation(
            f"{host}:{port}", client_id=settings.client_id, security=settings.security
        )
        self.place = self._conversation.place
        self._settings = settings
        self._socket = self._connect(host, port)
        try:
            self._write((self._conversation.open(),))
            while not self._conversation.ready:
                self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it; answers that are due will not come."""
        self._socket.close()

    def call(self, request: Message, version: int | None = None, *, max_version: int | None = None) -> Any:
        """Send a request and return its answer; no other may be awaited meanwhile."""
        assert not self._conversation.awaited
        self.send(request, version, max_version=max_version)
        return self.receive()

    def send(self, request: Message, version: int | None = None, *, max_version: int | None = None) -> None:
        """Send a request, as `Conversation.send` has it; its answer comes by `receive`."""
        self._write(self._conversation.send(request, version, max_version=max_version))

    def receive(self) -> Any:
        """Return the answer to the oldest request that has none yet; record batches in it are views of one buffer."""
        while not self._conversation.answers:
            assert self._conversation.awaited
            self._read()
        return self._conversation.answers.popleft()

    def _connect(self, host: str, port: int) -> socket.socket:
        security = self._settings.security
        try:
            plain = socket.create_connection((host, port), self._settings.request_timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise NoConnection(f"no broker answers at {self.place}: {error.strerror or error}") from None
        if not security.tls:
            return plain
        try:
            return security.context().wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            plain.close()
            raise ClientError(f"no TLS with {self.place}: {error}") from None
        except OSError as error:
            plain.close()
            raise BrokerUnreachable(f"no TLS with {self.place}: {error}") from None

    def _write(self, parts: Parts) -> None:
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise self._broken(error) from None

    def _read(self) -> None:
        try:
            count = self._socket.recv_into(self._conversation.get_buffer())
        except OSError as error:
            raise self._broken(error) from None
        if not count:
            raise self._conversation.closed()
        reply = self._conversation.buffer_updated(count)
        if reply:
            self._write((reply,))

    def _broken(self, error: OSError) -> BrokerUnreachable:
        return BrokerUnreachable(f"the connection to {self.place} broke: {error}")
