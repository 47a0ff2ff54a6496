"""The place of one request in the order of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.records.compression import Buffer
from magnetar.wire.kafka.header import RequestHeader, encode_response_header


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


def as_it_came(header: RequestHeader, answer: memoryview) -> Sequence[Buffer]:
    """Return an answer's parts, with the client's correlation id in place of the connection's."""
    return (header.correlation_id.to_bytes(4, "big", signed=True), answer[4:])


def written(header: RequestHeader, answer: Any) -> Sequence[Buffer]:
    """Return the parts of an answer that is told in other words."""
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return (head, *answer.encode_parts(header.api_version))
