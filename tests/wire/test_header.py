"""Headers, against the bytes of KIP-482 and KIP-511."""

from __future__ import annotations

import pytest

from magnetar.wire.kafka.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    peek_request_header,
)
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages import API_KEYS


@pytest.mark.parametrize("client_id", [None, "", "me", "ж" * 200])
def test_every_version_of_every_api_has_its_header_and_its_body_behind(client_id: str | None) -> None:
    for key, (_, low, high, _) in API_KEYS.items():
        for version in range(low, high + 1):
            header = RequestHeader(key, version, -7, client_id)
            frame = encode_request_header(header) + b"body"
            assert decode_request_header(memoryview(frame)) == (header, b"body")
            assert peek_request_header(frame) == (key, version, -7)
            answer = encode_response_header(key, version, 99) + b"body"
            assert decode_response_header(answer, key, version) == (99, b"body")


@pytest.mark.parametrize(
    ("key", "version", "request_", "response"),
    [
        (1, 11, "0001 000b 00000005 0002 6d65", "00000005"),
        (1, 12, "0001 000c 00000005 0002 6d65 00", "00000005 00"),
        (18, 2, "0012 0002 00000005 0002 6d65", "00000005"),
        (18, 3, "0012 0003 00000005 0002 6d65 00", "00000005"),
        (17, 1, "0011 0001 00000005 0002 6d65", "00000005"),
    ],
)
def test_golden_headers(key: int, version: int, request_: str, response: str) -> None:
    assert encode_request_header(RequestHeader(key, version, 5, "me")) == bytes.fromhex(request_)
    assert encode_response_header(key, version, 5) == bytes.fromhex(response)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0001 000c 00000005 ffff 01 63 02 0102") + b"body"
    header, body = decode_request_header(frame)
    assert header == RequestHeader(1, 12, 5, None)
    assert body == b"body"


def test_the_header_of_an_unknown_api_or_version_can_be_read() -> None:
    for key, version in ((9999, 3), (-1, 0), (18, 9999), (1, 0)):
        frame = encode_request_header(RequestHeader(key, version, 42, "me"))
        header, _ = decode_request_header(frame)
        assert header == RequestHeader(key, version, 42, "me")


def test_a_header_cut_short_or_not_in_utf8_is_refused() -> None:
    frame = encode_request_header(RequestHeader(1, 12, 5, "client"))
    for end in range(len(frame)):
        with pytest.raises(WireError):
            decode_request_header(frame[:end])
    with pytest.raises(WireError):
        decode_request_header(frame.replace(b"client", b"\xff" * 6))
    for tags in (b"\x01\x00\x7f", b"\xff\xff\xff\xff\x7f", b"\x05", b"\x90\x4e"):
        with pytest.raises(WireError):
            decode_request_header(frame[:-1] + tags)
    for end in range(8):
        with pytest.raises(WireError):
            peek_request_header(frame[:end])


def test_a_response_cut_short_is_refused() -> None:
    for end in range(5):
        with pytest.raises(WireError):
            decode_response_header(bytes(end), 1, 12)
