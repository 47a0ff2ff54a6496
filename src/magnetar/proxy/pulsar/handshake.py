"""CONNECT through a proxy, and lookups that are answered with it. Pure functions of frames.

A client that was told ``proxy_through_service_url`` connects to the proxy again, and says in CONNECT which broker it
means (``proxy_to_broker_url``); from CONNECTED on both sides' bytes pass. Who says nothing of that has lookups to make.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from magnetar import __version__
from magnetar.wire.pulsar.encode import frame
from magnetar.wire.pulsar.frames import BadFrame, CommandFrame, PulsarFrameReader, read_frame
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError

SIZE_BYTES = 4
_LEAST_BYTES = PulsarFrameReader.least_bytes
LONGEST_CONNECT_BYTES = 32 << 10
"""As brokers have it: it holds a token at most."""
_TYPE_AT = 8 + 1
"""Where a frame's command says its type: behind both sizes and the tag, which every client writes first."""
_TYPE_TAG = 0x08


class BrokerPlace(NamedTuple):
    """Where a broker is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_target(text: str) -> BrokerPlace:
    """Return what ``HOST:PORT`` or a URL means; raise ``ValueError``."""
    bare = text.rpartition("://")[2].rstrip("/")
    host, _, port = bare.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 0xFFFF:
        raise ValueError(f"{text[:200]!r} is no HOST:PORT")
    return BrokerPlace(host, int(port))


class FrameEnds:
    """Follows where frames end in bytes that only pass."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._left = 0  # of the frame that is passing
        self._head = b""  # a part of its size

    @property
    def missing_bytes(self) -> int:
        """How many bytes must still come before the frame that is passing can be whole; 0 between frames."""
        return self._left or (SIZE_BYTES - len(self._head) if self._head else 0)

    def passed(self, data: bytes) -> None:
        """Count bytes that passed."""
        count = len(data)
        if count <= self._left:
            self._left -= count
            return
        at = self._left
        if self._head:
            data = self._head + data
        end = len(data)
        while end - at >= SIZE_BYTES:
            size = int.from_bytes(data[at : at + SIZE_BYTES], "big")
            if size < _LEAST_BYTES:
                at = end  # the broker ends it
                break
            at += SIZE_BYTES + size
        self._head = data[at:] if at < end else b""
        self._left = max(at - end, 0)


def whole_size(data: bytes | bytearray) -> int | None:
    """Return how long the frame is that begins here, its size included; None if that has not come yet.

    Raises ``BadFrame`` for what is no CONNECT.
    """
    if len(data) < SIZE_BYTES:
        return None
    size = int.from_bytes(data[:SIZE_BYTES], "big")
    if not SIZE_BYTES <= size <= LONGEST_CONNECT_BYTES:
        raise BadFrame(f"a first frame of {size} bytes")
    return SIZE_BYTES + size


def read_connect(whole: bytes) -> BaseCommand:
    """Return the command that a client begins with; raise ``BadFrame`` if it is not CONNECT."""
    read: CommandFrame = read_frame(memoryview(whole)[SIZE_BYTES:])
    if read.command.type != BaseCommand.CONNECT:
        raise BadFrame("a first command that is not CONNECT")
    return read.command


def passed_on(command: BaseCommand) -> bytes:
    """Return CONNECT as a broker is told it: the client's own credentials, and that it comes through a proxy."""
    told = BaseCommand()
    told.CopyFrom(command)
    told.connect.ClearField("proxy_to_broker_url")
    told.connect.proxy_version = f"Magnetar {__version__}"
    return frame(told)


def refused(code: ServerError, why: str) -> bytes:
    """Return what a client is told that is not connected."""
    told = BaseCommand(type=BaseCommand.ERROR)
    told.error.request_id = (1 << 64) - 1
    told.error.error = code
    told.error.message = why
    return frame(told)


def is_lookup_response(whole: memoryview) -> bool:
    """Whether a frame, its size included, is the answer to a lookup."""
    return (
        len(whole) > _TYPE_AT
        and whole[_TYPE_AT - 1] == _TYPE_TAG
        and whole[_TYPE_AT] == BaseCommand.LOOKUP_RESPONSE
    )


def told_through(whole: memoryview) -> tuple[bytes, BrokerPlace | None]:
    """Return an answer to a lookup that has the client come back here, and the broker that it names, if it does."""
    command = read_frame(whole[SIZE_BYTES:]).command
    response = command.lookupTopicResponse
    url = response.brokerServiceUrl or response.brokerServiceUrlTls
    if response.response == CommandLookupTopicResponse.Failed or not url:
        return bytes(whole), None
    target = parse_target(url)
    # The client takes the one that its own connection is like, whatever the broker's is.
    response.brokerServiceUrl = f"pulsar://{target}"
    response.brokerServiceUrlTls = f"pulsar+ssl://{target}"
    response.proxy_through_service_url = True
    return frame(command), target


def is_allowed(target: BrokerPlace, hosts: tuple[str, ...], ports: tuple[str, ...]) -> bool:
    """Whether settings allow a broker's place: by a pattern of its host, and its port."""
    return any(fnmatchcase(target.host.lower(), each.lower()) for each in hosts) and any(
        each in ("*", str(target.port)) for each in ports
    )
