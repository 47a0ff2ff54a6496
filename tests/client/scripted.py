"""The other side of a conversation: a broker that answers from a table, in bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from magnetar.wire.kafka.header import decode_request_header, encode_response_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import request_class
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.api_versions_response import ApiVersion, ApiVersionsResponse

Answers = Callable[[Message, int], Message]


class ScriptedBroker:
    """Takes requests' bytes as they come, in pieces or many at once, and returns whole answers, in order.

    ``served`` are the versions of each API that it has; ``tells`` is whether it says so where ApiVersions itself is
    asked in a version it does not know (KIP-511).
    """

    def __init__(
        self, served: Mapping[int, tuple[int, int]], answers: Answers, *, tells: bool = True
    ) -> None:
        self.asked: list[tuple[Message, int]] = []
        self._served = dict(served)
        self._answers = answers
        self._tells = tells
        self._came = b""

    def hears(self, data: bytes) -> bytes:
        self._came += data
        told = b""
        while len(self._came) >= 4:
            (size,) = struct.unpack_from(">i", self._came)
            if len(self._came) < 4 + size:
                break
            told += self._answer(self._came[4 : 4 + size])
            self._came = self._came[4 + size :]
        return told

    def _answer(self, frame: bytes) -> bytes:
        header, body = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        low, high = self._served[key]
        if key == ApiVersionsRequest.API_KEY:
            rows = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self._served.items()]
            if not low <= version <= high:
                rows = [row for row in rows if self._tells and row.api_key == key]
                answer: Message = ApiVersionsResponse(error_code=35, api_keys=rows)
                version = 0
            else:
                answer = ApiVersionsResponse(api_keys=rows)
        else:
            assert low <= version <= high
            request = request_class(key).decode(body, version)
            self.asked.append((request, version))
            answer = self._answers(request, version)
        content = encode_response_header(key, version, header.correlation_id) + answer.encode(version)
        return struct.pack(">i", len(content)) + content
