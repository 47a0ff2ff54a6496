"""A client that says exactly what a test wants, right or wrong, and hears what comes back."""

from __future__ import annotations

import socket
import struct
import time
from typing import Self

from magnetar.records.crc import crc32c
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata
from tests.process import BrokerProcess

PATIENCE_S = 10.0


def frame(command: BaseCommand, entry: bytes = b"") -> bytes:
    body = command.SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


def entry(payload: bytes = b"hello", **metadata: object) -> bytes:
    """A message as producers frame it, with its checksum."""
    said = MessageMetadata(**{"producer_name": "raw", "sequence_id": 0, "publish_time": 1, **metadata})  # type: ignore[arg-type]
    head = said.SerializeToString()
    body = struct.pack(">I", len(head)) + head + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(body)) + body


class Raw:
    """One connection; connected as Pulsar's clients are unless told otherwise."""

    def __init__(self, broker: BrokerProcess, *, connect: bool = True) -> None:
        host, _, port = broker.served["pulsar"][0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._rest = b""
        if connect:
            answer = self.ask(hello())
            assert answer.type == BaseCommand.CONNECTED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._socket.close()

    def patience(self, seconds: float) -> None:
        """Wait no longer than this for each answer: then ``TimeoutError``."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def ask(self, command: BaseCommand, entry: bytes = b"") -> BaseCommand:
        self.send(frame(command, entry))
        return self.hear()[0]

    def hear(self) -> tuple[BaseCommand, bytes]:
        """Wait for one command and the entry with it; raise ``EOFError`` when the broker hung up."""
        (size,) = struct.unpack(">I", self._take(4))
        data = self._take(size)
        (length,) = struct.unpack_from(">I", data)
        return BaseCommand.FromString(data[4 : 4 + length]), data[4 + length :]

    def hears_nothing_more(self) -> bool:
        """Whether the broker closes the connection without another word, within as long as an answer is waited for.

        It may ask with PING meanwhile whether the client lives, again and again.
        """
        patience = self._socket.gettimeout() or PATIENCE_S
        until = time.monotonic() + patience
        try:
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                command, _ = self.hear()
                if command.type not in (BaseCommand.PING, BaseCommand.ERROR):
                    return False
        except (EOFError, ConnectionError):
            return True
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(patience)
        return False

    def _take(self, size: int) -> bytes:
        while len(self._rest) < size:
            data = self._socket.recv(65536)
            if not data:
                raise EOFError
            self._rest += data
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def hello(version: int = 21) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = "raw"
    command.connect.protocol_version = version
    return command


def ping() -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PING)
    command.ping.SetInParent()
    return command


def producer(topic: str, producer_id: int = 1, request_id: int = 1) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.PRODUCER)
    command.producer.topic = topic
    command.producer.producer_id = producer_id
    command.producer.request_id = request_id
    return command


def send(producer_id: int = 1, sequence_id: int = 0) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = producer_id
    command.send.sequence_id = sequence_id
    return command


def subscribe(topic: str, name: str = "s", consumer_id: int = 1, **options: object) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    command.subscribe.topic = topic
    command.subscribe.subscription = name
    command.subscribe.subType = options.pop("subType", 0)  # type: ignore[assignment]
    command.subscribe.consumer_id = consumer_id
    command.subscribe.request_id = 7
    for key, value in options.items():
        setattr(command.subscribe, key, value)
    return command


def close_consumer(consumer_id: int = 1) -> BaseCommand:
    """End a consumer; its subscription stays."""
    command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id, command.close_consumer.request_id = consumer_id, 1
    return command


def flow(permits: int, consumer_id: int = 1) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id = consumer_id
    command.flow.messagePermits = permits
    return command


def ack(ledger_id: int, entry_id: int, consumer_id: int = 1, **options: object) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = consumer_id
    command.ack.ack_type = options.pop("ack_type", 0)  # type: ignore[assignment]
    command.ack.request_id = 9
    command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return command
