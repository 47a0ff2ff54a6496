"""What Magnetar's brokers ask each other that Kafka has no words for: one API more in Kafka's framing.

    request   header version 1, API key 30000, version 0; what it is about: int16 length, UTF-8; then the rest: what is
              asked, which whoever answers it reads
    response  header version 0; then the rest: the answer

Clients are told of no such API, and it takes the right to act for the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.primitives import NEVER_FLEXIBLE, Append

BETWEEN_BROKERS_KEY = 30_000
_LENGTH = Struct(">h")


class BetweenBrokersRequest(Message):
    """A question of another broker."""

    __slots__ = ("about", "asked")
    API_KEY = BETWEEN_BROKERS_KEY
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = NEVER_FLEXIBLE
    _IN_PLACE = False

    def __init__(self, about: str = "", asked: bytes = b"") -> None:
        self.about = about
        self.asked = asked

    @staticmethod
    def _read(
        data: bytes, at: int, version: int, count: int, budget: list[int]
    ) -> tuple[list[BetweenBrokersRequest], int]:
        (length,) = _LENGTH.unpack_from(data, at)
        begin = at + _LENGTH.size
        if not 0 <= length <= len(data) - begin:
            raise WireError("BetweenBrokersRequest version 0 ends too early")
        about = data[begin : begin + length].decode()
        return [BetweenBrokersRequest(about, data[begin + length :])], len(data)

    @staticmethod
    def _write(items: Sequence[Any], append: Append, version: int) -> None:
        for item in items:
            about = item.about.encode()
            append(_LENGTH.pack(len(about)))
            append(about)
            append(item.asked)


class BetweenBrokersResponse(Message):
    """The answer."""

    __slots__ = ("answer",)
    API_KEY = BETWEEN_BROKERS_KEY
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = NEVER_FLEXIBLE
    _IN_PLACE = False

    def __init__(self, answer: bytes = b"") -> None:
        self.answer = answer

    @staticmethod
    def _read(
        data: bytes, at: int, version: int, count: int, budget: list[int]
    ) -> tuple[list[BetweenBrokersResponse], int]:
        return [BetweenBrokersResponse(data[at:])], len(data)

    @staticmethod
    def _write(items: Sequence[Any], append: Append, version: int) -> None:
        for item in items:
            append(item.answer)
