"""A client that can say anything: well-formed requests by our codec, or raw bytes."""

from __future__ import annotations

import socket
import struct
from typing import Any

from magnetar.wire.kafka.header import RequestHeader, decode_response_header, encode_request_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

SECONDS = 60  # a busy machine may take long over a million records


def frame(content: bytes) -> bytes:
    """Return a frame: the size, then ``content``."""
    return struct.pack(">i", len(content)) + content


def request_bytes(message: Message, version: int, correlation_id: int = 1) -> bytes:
    """Return a request's frame content, header and body."""
    header = RequestHeader(message.API_KEY, version, correlation_id, "hostile")
    return encode_request_header(header) + message.encode(version)


class Wire:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, SECONDS)
        self.socket.settimeout(SECONDS)
        self._correlation_id = 0

    def ask(self, message: Message, version: int | None = None) -> Any:
        """Send a request and give the decoded answer."""
        version = type(message).MAX_VERSION if version is None else version
        self._correlation_id += 1
        self.send(frame(request_bytes(message, version, self._correlation_id)))
        answer = self.frame()
        correlation_id, body = decode_response_header(answer, message.API_KEY, version)
        assert correlation_id == self._correlation_id
        return response_class(message.API_KEY).decode(body, version)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """Return the next frame's content; raise ``ConnectionError`` if there is none."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Wait for the other side to close, and tell whether it did so without another byte."""
        try:
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise ConnectionError("closed")
            found += more
        return bytes(found)


def produce(
    wire: Wire, topic: str, records: bytes | None, *, version: int = 9, acks: int = -1, index: int = 0
) -> Any:
    """Send one batch; give the partition's row of the answer."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=records)])]
    answer = wire.ask(ProduceRequest(acks=acks, timeout_ms=5000, topic_data=data), version)
    return answer.responses[0].partition_responses[0]


def fetch(wire: Wire, topic: str, offset: int, **asked: int) -> Any:
    """Fetch without a session; give the partition's row of the answer."""
    partition = FetchPartition(
        **({"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | asked)
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    request.session_epoch = -1
    return wire.ask(request, 12).responses[0].partitions[0]
