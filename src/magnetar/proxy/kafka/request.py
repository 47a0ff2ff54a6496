"""The place of one request in the order of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.records.compression import Buffer
from magnetar.wire.kafka.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from magnetar.wire.kafka.messages import response_class


class ProxiedRequest:
    """``parts`` are there once it is answered, none if the client wants no answer."""

    __slots__ = ("came_s", "header", "parts", "placed", "size")

    def __init__(self, header: RequestHeader, size: int, came_s: float) -> None:
        self.header = header
        self.size = size
        self.came_s = came_s
        self.placed = False
        """Whether the next Produce may be begun: all parts of this one are on their way."""
        self.parts: Sequence[Buffer] | None = None


def framed(header: RequestHeader, request: Any) -> memoryview:
    """Return a request as one frame, in a client's name."""
    head = encode_request_header(header)
    return memoryview(b"".join((head, *request.encode_parts(header.api_version))))


def read_answer(header: RequestHeader, frame: memoryview) -> Any:
    """Return a broker's answer. Raises `WireError`."""
    _, body = decode_response_header(frame, header.api_key, header.api_version)
    message: Any = response_class(header.api_key)
    return message.decode(body, header.api_version)


def as_it_came(header: RequestHeader, answer: memoryview) -> Sequence[Buffer]:
    """Return an answer's parts, with the client's correlation id in place of the connection's."""
    return (header.correlation_id.to_bytes(4, "big", signed=True), answer[4:])


def written(header: RequestHeader, answer: Any, *, has_many_rows: bool = False) -> Sequence[Buffer]:
    """Return the parts of an answer that is told in other words; two of one with many rows."""
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    if has_many_rows:
        return (head, answer.encode(header.api_version))
    return (head, *answer.encode_parts(header.api_version))
