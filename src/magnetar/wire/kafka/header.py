"""Request and response headers: whose answer is whose.

    request v1   int16 api key, int16 version, int32 correlation id, nullable string client id
    request v2   the same, then tagged fields; the client id keeps its classic two-byte length (KIP-482)
    response v0  int32 correlation id
    response v1  the same, then tagged fields

A flexible version of an API has request header v2 and response header v1, but ApiVersions is always answered
with header v0, so that a client can read "unsupported version" from any broker (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from magnetar.records.tuples import maker
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages import API_KEYS
from magnetar.wire.kafka.primitives import NEVER_FLEXIBLE, skip_tags

API_VERSIONS = 18

_FIXED = Struct(">hhih")
_PEEKED = Struct(">hhi")
_CORRELATION = Struct(">i")
_FLEXIBLE_SINCE = {key: flexible_since for key, (_, _, _, flexible_since) in API_KEYS.items()}


class RequestHeader(NamedTuple):
    """What every request begins with; ``client_id`` is None when the client gave none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_header_of = maker(RequestHeader)


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether this version has tagged fields; an unknown API has none that we could skip."""
    return api_version >= _FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE)


def decode_request_header(frame: memoryview | bytes) -> tuple[RequestHeader, memoryview]:
    """Take the header off a frame (without its size) and give what is behind it; raises ``WireError``.

    The API or its version may be unknown: the header up to the client id never changed.
    """
    frame = memoryview(frame)
    size = len(frame)
    if size < 10:
        raise WireError(f"a request of {size} bytes has no header")
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    at = 10 + length if length > 0 else 10
    if at > size:
        raise WireError("the client id is longer than the request")
    try:
        client_id = str(frame[10:at], "utf-8") if length >= 0 else None
        if api_version >= _FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
            at = at + 1 if frame[at] == 0 else skip_tags(frame, at)
    except (IndexError, UnicodeDecodeError) as error:
        raise WireError(f"request header: {error}") from error
    if at > size:
        raise WireError("the header's tagged fields are longer than the request")
    return _header_of((api_key, api_version, correlation_id, client_id)), frame[at:]


def peek_request_header(frame: memoryview | bytes) -> tuple[int, int, int]:
    """Return API key, version and correlation id, which even an unreadable request begins with."""
    if len(frame) < 8:
        raise WireError(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id = _PEEKED.unpack_from(frame)
    return api_key, api_version, correlation_id


def encode_request_header(header: RequestHeader) -> bytes:
    """Write the header of a request, to be followed by its body."""
    name = None if header.client_id is None else header.client_id.encode()
    length = -1 if name is None else len(name)
    if length > 0x7FFF:
        raise WireError(f"a client id of {length} bytes is too long")
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id, length)
    tags = b"\0" if is_flexible(header.api_key, header.api_version) else b""
    return fixed + (name or b"") + tags


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Write the header of the answer to a request of this API and version."""
    if api_version >= _FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE) and api_key != API_VERSIONS:
        return _CORRELATION.pack(correlation_id) + b"\0"
    return _CORRELATION.pack(correlation_id)


def decode_response_header(
    frame: memoryview | bytes, api_key: int, api_version: int
) -> tuple[int, memoryview]:
    """Return the correlation id of an answer and what is behind the header; raises ``WireError``."""
    frame = memoryview(frame)
    try:
        at = 4
        if api_key != API_VERSIONS and is_flexible(api_key, api_version):
            at = skip_tags(frame, at)
    except IndexError as error:
        raise WireError("a response ends within its header") from error
    if at > len(frame):
        raise WireError("a response ends within its header")
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    return correlation_id, frame[at:]
