"""Connections that say anything: well-formed requests made by the broker's own codecs, or raw bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any, Self

from benchmarks.attacks.target import Target
from magnetar.records.crc import crc32c
from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata

PATIENCE_S = 120.0


class Wire:
    """One socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_as_taken(self, data: bytes, seconds: float) -> int:
        """Send as much as the broker takes, until it takes nothing for so long; give how many bytes."""
        self.socket.settimeout(seconds)
        sent, view = 0, memoryview(data)
        try:
            while sent < len(view):
                sent += self.socket.send(view[sent : sent + (1 << 20)])
        except (TimeoutError, ConnectionError):
            pass
        self.socket.settimeout(PATIENCE_S)
        return sent

    def take(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self.socket.recv(min(size - len(found), 1 << 20))
            if not more:
                raise ConnectionError("the broker hung up")
            found += more
        return bytes(found)

    def frame(self) -> bytes:
        """Return the next frame, without its size."""
        return self.take(int.from_bytes(self.take(4), "big"))

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Vanish without a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def request(message: Message, version: int) -> bytes:
    """Return a request of Kafka's as it goes over the wire."""
    content = encode_request_header(RequestHeader(message.API_KEY, version, 1, "attacker")) + message.encode(
        version
    )
    return struct.pack(">i", len(content)) + content


class KafkaWire(Wire):
    """A Kafka client."""

    def __init__(self, target: Target) -> None:
        super().__init__(target.port)

    def ask(self, message: Message, version: int) -> Any:
        self.send(request(message, version))
        return self.answer(message, version)

    def answer(self, message: Message, version: int) -> Any:
        _, body = decode_response_header(memoryview(self.frame()), message.API_KEY, version)
        return response_class(message.API_KEY).decode(body, version)


def command(kind: str, field: str = "", **said: Any) -> BaseCommand:
    """Return a command of Pulsar's: ``command("SUBSCRIBE", consumer_id=1, ...)``."""
    made = BaseCommand(type=BaseCommand.Type.Value(kind))
    body = getattr(made, field or kind.lower())
    body.SetInParent()
    for name, value in said.items():
        if isinstance(value, Iterable) and not isinstance(value, str | bytes):
            getattr(body, name).extend(value)
        else:
            setattr(body, name, value)
    return made


def frame(made: BaseCommand, entry: bytes = b"") -> bytes:
    """Return a frame of Pulsar's."""
    body = made.SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


def entry(payload: bytes, **metadata: Any) -> bytes:
    """Return a message as producers frame it, with its checksum."""
    head = MessageMetadata(producer_name="a", sequence_id=0, publish_time=1, **metadata).SerializeToString()
    body = struct.pack(">I", len(head)) + head + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(body)) + body


class PulsarWire(Wire):
    """A Pulsar client, connected unless told otherwise."""

    def __init__(self, target: Target, *, connect: bool = True) -> None:
        super().__init__(target.pulsar_port)
        if connect:
            self.ask(command("CONNECT", client_version="attacker", protocol_version=21))

    def ask(self, made: BaseCommand, entry: bytes = b"") -> BaseCommand:
        self.send(frame(made, entry))
        return self.hear()

    def heard_or_closed(self) -> str:
        """Return the name of the next command that comes, within two seconds; or say that the broker hung up."""
        self.socket.settimeout(2)
        try:
            return BaseCommand.Type.Name(self.hear().type)
        except TimeoutError:
            return "no answer"
        except ConnectionError:
            return "closed"

    def hear(self) -> BaseCommand:
        """Wait for one command; pings are answered."""
        while True:
            data = self.frame()
            (size,) = struct.unpack_from(">I", data)
            heard = BaseCommand.FromString(data[4 : 4 + size])
            if heard.type != BaseCommand.PING:
                return heard
            self.send(frame(command("PONG")))
